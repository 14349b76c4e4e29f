"""The reference model against Hugging Face's LlamaForCausalLM with the same weights."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from kvviz.model import weights
from kvviz.model.llama import Llama, parameter_shapes
from kvviz.shapes import ModelShape

SHIPPED = Path(__file__).resolve().parents[2] / "data" / "model"
TOLERANCE = 1e-4


def _tokens(length: int) -> Tensor:
    return torch.randint(0, 257, (2, length), generator=torch.Generator().manual_seed(3))


def _wide_weights(shape: ModelShape) -> Llama:
    """Random weights large enough that attention is far from uniform."""
    generator = torch.Generator().manual_seed(5)
    model = Llama(shape, generator)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.15, generator=generator)
    return model.eval()


def _largest_difference(model: Llama, folder: Path, length: int) -> float:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        difference = theirs(_tokens(length)).logits - model(_tokens(length))
    return difference.abs().max().item()


@pytest.mark.parametrize(
    "shape",
    [
        ModelShape(),
        ModelShape(num_hidden_layers=2, num_key_value_heads=6, rope_theta=500_000.0),
        ModelShape(num_hidden_layers=2, num_key_value_heads=1, head_dim=16, rms_norm_eps=1e-3),
    ],
)
def test_random_weights_match_transformers(shape: ModelShape, tmp_path: Path) -> None:
    model = _wide_weights(shape)
    weights.save(model, tmp_path)
    assert _largest_difference(model, tmp_path, 96) < TOLERANCE


def test_shipped_weights_match_transformers() -> None:
    assert _largest_difference(weights.load_model(SHIPPED), SHIPPED, 300) < TOLERANCE


def test_shipped_model_predicts_python() -> None:
    model = weights.load_model(SHIPPED)
    prompt = b"def get(self, name):\n    retur"
    with torch.no_grad():
        logits = model(torch.tensor([[256, *prompt]]))
    assert logits[0, -1].argmax().item() == ord("n")


def test_attention_is_causal() -> None:
    model = _wide_weights(ModelShape())
    tokens = _tokens(24)
    changed = tokens.clone()
    changed[:, 12:] = (changed[:, 12:] + 1) % 257
    with torch.no_grad():
        before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :12], after[:, :12])
    assert not torch.allclose(before[:, 12:], after[:, 12:])


def test_seed_fixes_the_weights_and_leaves_the_global_generator() -> None:
    state = torch.get_rng_state()
    first = Llama(ModelShape(), torch.Generator().manual_seed(1)).state_dict()
    second = Llama(ModelShape(), torch.Generator().manual_seed(1)).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    "shape",
    [
        ModelShape(),
        ModelShape(tie_word_embeddings=False, head_dim=16, num_hidden_layers=1),
        ModelShape(qkv_bias=True, num_hidden_layers=1),
        ModelShape(qk_norm=True, num_hidden_layers=2),
    ],
)
def test_parameter_shapes_name_every_weight(shape: ModelShape) -> None:
    sizes = {name: tuple(tensor.shape) for name, tensor in Llama(shape).state_dict().items()}
    assert parameter_shapes(shape) == sizes
