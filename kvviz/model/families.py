"""Which checkpoints can be served: Hugging Face's `config.json` read into a ModelShape.

Llama, Mistral, Qwen2, Qwen3, and what is one of them under another name (SmolLM2, TinyLlama).
Whatever would change the numbers and isn't done here is refused, and named.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kvviz.errors import CheckpointError
from kvviz.shapes import ModelShape, RopeScaling

CONFIG_NAME = "config.json"


class Family(NamedTuple):
    """What a family's layers have, and what its config means where it is silent."""

    architecture: str
    qkv_bias: bool = False
    qk_norm: bool = False
    default_window: int | None = None
    window_needs_flag: bool = False


FAMILIES: dict[str, Family] = {
    "llama": Family("LlamaForCausalLM"),
    "mistral": Family("MistralForCausalLM", default_window=4096),
    "qwen2": Family("Qwen2ForCausalLM", qkv_bias=True, window_needs_flag=True),
    "qwen3": Family("Qwen3ForCausalLM", qk_norm=True, window_needs_flag=True),
}
# Keys that say a checkpoint needs what is not served, and what that is called.
FOREIGN = {
    "quantization_config": "quantized weights (quantization_config)",
    "num_local_experts": "a mixture of experts (num_local_experts)",
    "num_experts": "a mixture of experts (num_experts)",
    "n_routed_experts": "a mixture of experts (n_routed_experts)",
    "kv_lora_rank": "latent attention (kv_lora_rank)",
    "attention_bias": "a bias on the attention's output (attention_bias)",
    "mlp_bias": "biases in the MLP (mlp_bias)",
    "no_rope_layers": "layers without rotary embedding (no_rope_layers)",
}
_NEEDED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
)
_MOST, _MOST_LAYERS = 1 << 28, 4096  # sizes; no model comes near
_LLAMA3 = tuple(RopeScaling.__dataclass_fields__)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a checkpoint folder. Raises CheckpointError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError(f"{type(found).__name__} instead of an object")
        return found
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} can't be read ({type(error).__name__}: {error}). Point `model` at a folder "
            "that holds config.json, model.safetensors and tokenizer.json."
        ) from error


def read_shape(folder: Path) -> ModelShape:
    """The shape of a checkpoint folder. Raises CheckpointError, with what is not supported."""
    path = folder / CONFIG_NAME
    return shape_of(read_json(path), str(path))


def shape_of(config: Mapping[str, Any], where: str = CONFIG_NAME) -> ModelShape:
    """A `config.json` as a shape. Raises CheckpointError that names the part in the way."""
    family = _family(config, where)
    missing = [name for name in _NEEDED if config.get(name) is None]
    if missing:
        raise CheckpointError(
            f"{where} does not say {', '.join(missing)}. Take the config.json that belongs to "
            "these weights."
        )
    try:
        return _shape(config, family, where)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"{where} has a value of the wrong kind: {error}.") from error


def _shape(config: Mapping[str, Any], family: Family, where: str) -> ModelShape:
    heads = _size(config, "num_attention_heads")
    theta, scaling = _rope(config, where)
    kv_heads = _size(config, "num_key_value_heads", heads)
    head_dim = _size(config, "head_dim", _size(config, "hidden_size") // heads)
    if heads % kv_heads or head_dim % 2:
        raise CheckpointError(
            f"{where}: {heads} query heads can't share {kv_heads} key/value heads of size "
            f"{head_dim}. Take the config.json that belongs to these weights."
        )
    return ModelShape(
        **{name: _size(config, name) for name in _NEEDED},
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        rope_theta=theta,
        rms_norm_eps=_finite(config.get("rms_norm_eps", 1e-6)),
        max_position_embeddings=_size(config, "max_position_embeddings", 2048),
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=family.qkv_bias,
        qk_norm=family.qk_norm,
        sliding_window=_window(config, family, where),
        rope_scaling=scaling,
    )


def _size(config: Mapping[str, Any], name: str, default: int = 0) -> int:
    """A whole number above 0; the default where there is none, or 0. Raises ValueError."""
    value = config.get(name) or default
    most = _MOST_LAYERS if name == "num_hidden_layers" else _MOST
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{name} must be a whole number from 1 to {most:,}")
    return value


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is no number to compute with")
    return number


def _family(config: Mapping[str, Any], where: str) -> Family:
    for key, what in FOREIGN.items():
        if config.get(key):
            raise _unsupported(where, what)
    kind = config.get("model_type")
    architectures = config.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else None
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None or named not in (None, family.architecture):
        raise _unsupported(where, f"the architecture {named or kind}")
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise _unsupported(where, f"the activation {activation}")
    return family


def _rope(config: Mapping[str, Any], where: str) -> tuple[float, RopeScaling | None]:
    """(theta, scaling) from `rope_parameters`, or from the older `rope_theta`, `rope_scaling`."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if any(isinstance(value, Mapping) for value in given.values()):
        raise _unsupported(where, "rotary embedding that differs between layers")
    kind = given.get("rope_type", given.get("type", "default"))
    partial = given.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    if partial != 1.0:
        raise _unsupported(where, f"rotary embedding of a part of each head ({partial})")
    theta = _finite(given.get("rope_theta") or config.get("rope_theta") or 10_000.0)
    if theta <= 0:
        raise ValueError("rope_theta must be above 0")
    if kind == "default":
        return theta, None
    if kind != "llama3":
        raise _unsupported(where, f"the rope type {kind}")
    missing = [name for name in _LLAMA3 if name not in given]
    if missing:
        raise CheckpointError(f"{where}: rope type llama3 without {', '.join(missing)}.")
    return theta, RopeScaling(**{name: _finite(given[name]) for name in _LLAMA3})


def _window(config: Mapping[str, Any], family: Family, where: str) -> int:
    """The sliding window of all layers, 0 for none; layers that differ are refused."""
    kinds = set(map(str, config.get("layer_types") or ()))
    if kinds - {"full_attention", "sliding_attention"} or len(kinds) > 1:
        raise _unsupported(where, f"layers of several kinds ({', '.join(sorted(kinds))})")
    window = config.get("sliding_window", family.default_window)
    if family.window_needs_flag:
        if not config.get("use_sliding_window", False):
            return 0
        if kinds != {"sliding_attention"}:  # some layers slide, from max_window_layers on
            raise _unsupported(where, "a sliding window in some layers (use_sliding_window)")
    if not window:
        return 0
    if type(window) is not int or not 0 < window <= _MOST:
        raise ValueError(f"sliding_window must be a whole number up to {_MOST:,}")
    return window


def _unsupported(where: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"{where}: {what} is not supported. kvviz serves "
        f"{', '.join(family.architecture for family in FAMILIES.values())} with plain weights."
    )
