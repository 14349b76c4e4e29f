"""Reading and writing a model folder: `config.json` and `model.safetensors`, Hugging Face style."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes
from torch import Tensor

from kvviz.errors import CheckpointError
from kvviz.model.corpus import EOT
from kvviz.model.llama import Llama, parameter_shapes
from kvviz.shapes import ModelShape

WEIGHTS_NAME = "model.safetensors"
CONFIG_NAME = "config.json"


def config_of(shape: ModelShape) -> dict[str, object]:
    """The fields of a Hugging Face `LlamaConfig` that describe `shape`."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **asdict(shape),
        # Newer transformers read the angles from here; older ones read `rope_theta` above.
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "hidden_act": "silu",
        "tie_word_embeddings": True,
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

    Raises CheckpointError when a file is missing or damaged, or a tensor is missing or has
    another shape than `config.json` gives it.
    """
    shape = ModelShape.from_folder(folder)
    path = folder / WEIGHTS_NAME
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} can't be read as safetensors ({type(error).__name__}: {error}). "
            "Point `model` at a folder that holds config.json and model.safetensors."
        ) from error
    expected = parameter_shapes(shape)
    for name, wanted in expected.items():
        _check(path, name, tensors.get(name), wanted)
    return shape, {name: tensors[name].to(torch.float32) for name in expected}


def _check(path: Path, name: str, tensor: Tensor | None, wanted: tuple[int, ...]) -> None:
    """Raise CheckpointError unless `tensor` is there and has the shape `wanted`."""
    if tensor is None:
        raise CheckpointError(
            f"{path} has no tensor {name!r}. It needs every weight of a Llama decoder of the "
            "size in config.json, under Hugging Face's names."
        )
    if tuple(tensor.shape) != wanted:
        raise CheckpointError(
            f"{path}: tensor {name!r} is {list(tensor.shape)}, but config.json makes it "
            f"{list(wanted)}. Use the config.json that belongs to these weights."
        )


def load_model(folder: Path) -> Llama:
    """The reference model with the weights of `folder`. Raises CheckpointError like `load`."""
    shape, tensors = load(folder)
    model = Llama(shape)
    model.load_state_dict(tensors)
    return model.eval()
