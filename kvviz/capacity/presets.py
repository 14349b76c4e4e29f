"""Known models and GPUs, and whether a config is what its name says."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from kvviz.capacity.fields import Fields, language_part
from kvviz.capacity.kvshape import KVShape
from kvviz.capacity.reader import HIDDEN, LAYERS, read_shape
from kvviz.errors import ConfigError

MODELS_FILE = Path(__file__).resolve().parents[2] / "data" / "models.json"


@dataclass(frozen=True)
class Model:
    """config: the fields of config.json that matter here. parameters: of all experts.
    source: where the fields come from, or can be compared."""

    name: str
    config: Mapping[str, Any]
    parameters: float
    weights: str
    source: str


@lru_cache(maxsize=1)  # frozen, and asked for with every run of the page
def _file() -> dict[str, Any]:
    return json.loads(MODELS_FILE.read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def models() -> Mapping[str, Model]:
    return {
        m["name"]: Model(m["name"], m["config"], m["parameters"], m["weights"], m["source"])
        for m in _file()["models"]
    }


def gpus() -> dict[str, float]:
    """Memory in GiB by name, as the driver reports it."""
    return {g["name"]: g["gib"] for g in _file()["gpus"]}


def model(name: str) -> Model:
    """Raises ConfigError with the known names; case does not matter."""
    known = {key.lower(): value for key, value in models().items()}
    if name.lower() not in known:
        raise ConfigError(f"no model {name[:60]!r}. There is: {', '.join(models())}.")
    return known[name.lower()]


def preset_named(name: str) -> Model | None:
    """The preset whose name is part of this one: `meta-llama/Llama-3.1-8B-Instruct`."""
    flat = _flat(name.rpartition("/")[2])
    named = [m for m in models().values() if _flat(m.name) in flat]
    return max(named, key=lambda m: len(m.name)) if named else None


def unlike_preset(config: Mapping[str, Any], name: str = "") -> list[str]:
    """A sentence when the cache costs something else than that of the preset of this name, or
    else of every preset of the same family, depth and width; none when it is what it seems."""
    root, f = Fields(config), language_part(config)
    words = (name, root.word("_name_or_path"), f.word("_name_or_path"))
    named = next((found for word in words if (found := preset_named(word))), None)
    mine = read_shape(config, kv_dtype="bf16")
    if named is not None:
        theirs = read_shape(named.config, kv_dtype="bf16")
        return _difference(named.name, mine, theirs)
    signature = _signature(f)
    alike = [
        m
        for m in models().values()
        if signature and signature == _signature(language_part(m.config))
    ]
    shapes = {m.name: read_shape(m.config, kv_dtype="bf16") for m in alike}
    if not shapes or any(s.slot_bytes == mine.slot_bytes for s in shapes.values()):
        return []
    return _difference(*next((n, mine, s) for n, s in shapes.items()))


def _difference(name: str, mine: KVShape, theirs: KVShape) -> list[str]:
    if mine.slot_bytes != theirs.slot_bytes:
        return [
            f"looks like {name}, but a slot takes {mine.slot_bytes:,} bytes, not "
            f"{theirs.slot_bytes:,} ({mine.slot_bytes / theirs.slot_bytes:.3g} times; in 16 bits). "
            "Check layers, KV heads and head_dim against the published file."
        ]
    if mine.constant_bytes != theirs.constant_bytes:
        return [
            f"looks like {name}, but windows and states take {mine.constant_bytes:,} bytes a "
            f"request, not {theirs.constant_bytes:,}. Check the windows."
        ]
    return []


def _signature(f: Fields) -> tuple[Any, ...] | None:
    """Family, depth, width; None when the config does not say all three."""
    layers, hidden = f.first(*LAYERS), f.first(*HIDDEN)
    if not (f.has("model_type") and layers and hidden):
        return None
    return f.raw["model_type"], f.raw[layers], f.raw[hidden]


def _flat(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
