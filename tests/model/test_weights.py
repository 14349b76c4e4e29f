"""Model folders: what is written comes back, and each kind of damage is named."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from kvviz.errors import CheckpointError
from kvviz.model import weights
from kvviz.model.llama import Llama
from kvviz.shapes import ModelShape

SHAPE = ModelShape(hidden_size=48, intermediate_size=64, num_hidden_layers=2, head_dim=8)
NORM = "model.norm.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    weights.save(Llama(SHAPE, torch.Generator().manual_seed(2)), tmp_path)
    return tmp_path


def _edit_tensors(folder: Path, edit: Callable[[dict[str, torch.Tensor]], object]) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path)


def test_round_trip(folder: Path) -> None:
    shape, tensors = weights.load(folder)
    model = Llama(SHAPE, torch.Generator().manual_seed(2))
    assert shape == SHAPE
    assert tensors.keys() == model.state_dict().keys()
    assert all(torch.equal(tensors[name], value) for name, value in model.state_dict().items())
    assert "lm_head.weight" not in tensors
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]


def test_loaded_model_gives_the_same_logits(folder: Path) -> None:
    tokens = torch.arange(12)[None]
    with torch.no_grad():
        expected = Llama(SHAPE, torch.Generator().manual_seed(2))(tokens)
        assert torch.equal(weights.load_model(folder)(tokens), expected)


def test_config_is_read_by_transformers(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.from_pretrained(folder)
    assert config.rope_parameters["rope_theta"] == SHAPE.rope_theta
    assert config.tie_word_embeddings and not config.attention_bias and not config.mlp_bias
    assert (config.num_key_value_heads, config.head_dim) == (2, 8)
    assert config.eos_token_id == config.bos_token_id == 256


def test_half_precision_files_load_as_float32(folder: Path) -> None:
    _edit_tensors(folder, lambda t: t.update({n: v.to(torch.bfloat16) for n, v in t.items()}))
    assert {tensor.dtype for tensor in weights.load(folder)[1].values()} == {torch.float32}


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=name):
        weights.load(folder)


@pytest.mark.parametrize("content", [b"", b"not a tensor file", b"\xff" * 64])
def test_a_damaged_file_is_named(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match="can't be read as safetensors"):
        weights.load(folder)


def test_a_cut_file_is_named(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="can't be read as safetensors"):
        weights.load(folder)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    _edit_tensors(folder, lambda tensors: tensors.pop(NORM))
    with pytest.raises(CheckpointError, match=f"no tensor '{NORM}'"):
        weights.load(folder)


def test_a_wrong_shape_is_named(folder: Path) -> None:
    _edit_tensors(folder, lambda tensors: tensors.update({NORM: torch.ones(7)}))
    with pytest.raises(CheckpointError, match=rf"'{NORM}' is \[7\], but .* \[48\]"):
        weights.load(folder)


def test_a_config_of_another_model_is_refused(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"num_hidden_layers": 3}))
    with pytest.raises(CheckpointError, match="no tensor 'model.layers.2"):
        weights.load(folder)


def test_a_failed_save_leaves_the_old_weights(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (folder / "model.safetensors").read_bytes()

    def fail(*args: object, **kwargs: object) -> bytes:
        raise OSError("disk full")

    monkeypatch.setattr(weights, "to_bytes", fail)
    with pytest.raises(OSError, match="disk full"):
        weights.save(Llama(SHAPE, torch.Generator().manual_seed(9)), folder)
    assert (folder / "model.safetensors").read_bytes() == before
