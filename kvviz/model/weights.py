"""Reading and writing a model folder: `config.json` and `model.safetensors`, Hugging Face style."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from kvviz.errors import CheckpointError
from kvviz.model.corpus import EOT
from kvviz.model.families import CONFIG_NAME, read_json, read_shape
from kvviz.model.llama import Llama, parameter_shapes
from kvviz.shapes import ModelShape

WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
# What tells the families apart; the config of a Llama says it by its model_type.
_OTHER_FAMILIES = ("qkv_bias", "qk_norm", "sliding_window", "rope_scaling")


def config_of(shape: ModelShape) -> dict[str, object]:
    """The fields of a Hugging Face `LlamaConfig` that describe `shape`, which must be a Llama's."""
    fields = asdict(shape)
    foreign = [name for name in _OTHER_FAMILIES if fields.pop(name)]
    assert not foreign, f"a plain Llama has no {foreign}"
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **fields,
        # Newer transformers read the angles from here; older ones read `rope_theta` above.
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
        "bos_token_id": EOT,
        "eos_token_id": EOT,
    }


def save(model: Llama, folder: Path) -> None:
    """Write both files in float32, each by a rename, so a reader never meets half a file."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: tensor.detach().to(torch.float32).contiguous()
        for name, tensor in model.state_dict().items()
    }
    part = folder / f"{WEIGHTS_NAME}.part"
    part.write_bytes(to_bytes(tensors, metadata={"format": "pt"}))
    os.replace(part, folder / WEIGHTS_NAME)
    part = folder / f"{CONFIG_NAME}.part"
    part.write_text(json.dumps(config_of(model.shape), indent=2) + "\n", encoding="utf-8")
    os.replace(part, folder / CONFIG_NAME)


def load(folder: Path) -> tuple[ModelShape, dict[str, Tensor]]:
    """Shape and float32 tensors of a model folder, checked against each other.

    Raises CheckpointError when a file is missing or damaged, the model is of a kind that is not
    supported, or a tensor is missing or has another shape than `config.json` gives it.
    """
    shape = read_shape(folder)
    expected = parameter_shapes(shape)
    tensors: dict[str, Tensor] = {}
    for path, names in _files(folder, expected).items():
        tensors |= _read(path, names)
    for name, wanted in expected.items():
        _check(folder, name, tensors.get(name), wanted)
    return shape, {name: tensors[name].to(torch.float32) for name in expected}


def _files(folder: Path, names: Iterable[str]) -> dict[Path, list[str]]:
    """Which tensors to read from which file: one file, or shards that an index lists."""
    single, index = folder / WEIGHTS_NAME, folder / INDEX_NAME
    if single.exists() or not index.exists():
        return {single: list(names)}
    shards = read_json(index).get("weight_map")
    if not isinstance(shards, dict):
        raise CheckpointError(f"{index} has no weight_map. Fetch the checkpoint again.")
    files: dict[Path, list[str]] = {}
    for name in names:
        if name in shards:
            files.setdefault(folder / Path(str(shards[name])).name, []).append(name)
    return files


def _read(path: Path, names: Iterable[str]) -> dict[str, Tensor]:
    """The named tensors that the file has."""
    try:
        with safe_open(path, "pt") as file:
            held = set(file.keys())
            return {name: file.get_tensor(name) for name in names if name in held}
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} can't be read as safetensors ({type(error).__name__}: {error}). "
            "Point `model` at a folder that holds config.json and model.safetensors."
        ) from error


def _check(folder: Path, name: str, tensor: Tensor | None, wanted: tuple[int, ...]) -> None:
    """Raise CheckpointError unless `tensor` is there and has the shape `wanted`."""
    if tensor is None:
        raise CheckpointError(
            f"{folder} has no tensor {name!r}. It needs every weight of a decoder of the kind and "
            "size in config.json, under Hugging Face's names."
        )
    if tuple(tensor.shape) != wanted:
        raise CheckpointError(
            f"{folder}: tensor {name!r} is {list(tensor.shape)}, but config.json makes it "
            f"{list(wanted)}. Use the config.json that belongs to these weights."
        )


def load_model(folder: Path) -> Llama:
    """The reference model with the weights of `folder`. Raises CheckpointError like `load`."""
    shape, tensors = load(folder)
    model = Llama(shape)
    model.load_state_dict(tensors)
    return model.eval()
