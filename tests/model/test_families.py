"""Checkpoints that transformers wrote, family by family: the same logits, or a named refusal."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from kvviz.build import Backend
from kvviz.caches.budget import PoolBudget
from kvviz.caches.layouts import LAYOUTS
from kvviz.errors import CheckpointError
from kvviz.model import weights
from kvviz.model.families import read_shape, shape_of
from kvviz.model.serving import fuse, pack, product
from kvviz.shapes import ModelShape
from tests.conftest import random_llama, random_prompt
from tests.helpers import lanes, request, run_steps, small
from tests.model.test_parity import DECODERS, LENGTHS, served_logits

VOCAB = 300
SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "head_dim": 16,  # 6 x 16 is not the hidden size
    "eos_token_id": 7,
    "bos_token_id": 6,
    "pad_token_id": 5,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CASES = {
    "llama": (LlamaForCausalLM, LlamaConfig, {"tie_word_embeddings": True}),
    "llama untied": (LlamaForCausalLM, LlamaConfig, {"tie_word_embeddings": False}),
    "llama 3.1": (LlamaForCausalLM, LlamaConfig, {"rope_parameters": LLAMA3}),
    "llama one head": (LlamaForCausalLM, LlamaConfig, {"num_key_value_heads": 1}),
    "mistral": (MistralForCausalLM, MistralConfig, {"sliding_window": 16}),
    "mistral no window": (MistralForCausalLM, MistralConfig, {"sliding_window": None}),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, {"num_attention_heads": 4, "num_key_value_heads": 1}),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, {"tie_word_embeddings": True}),
}


def checkpoint(case: str, folder: Path, **save: object) -> PreTrainedModel:
    """A random model of the family, written by transformers' own `save_pretrained`."""
    build, config, changes = CASES[case]
    torch.manual_seed(11)
    model = build(config(**SIZES | changes)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            low = 0.5 if "norm" in name else -0.4
            weight.uniform_(low, low + (1 if "norm" in name else 0.8))
    model.save_pretrained(folder, **save)
    return model


@pytest.fixture(scope="module", params=CASES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """(transformers' model, its folder)"""
    folder = tmp_path_factory.mktemp("checkpoint")
    return checkpoint(request.param, folder), folder


def logits_of(model: torch.nn.Module, tokens: np.ndarray) -> np.ndarray:
    """Logits [tokens, vocab] in one pass without a cache, transformers' or ours."""
    with torch.inference_mode():
        found = model(torch.from_numpy(tokens.astype(np.int64))[None])
    return getattr(found, "logits", found)[0].numpy()


def prompts() -> dict[int, np.ndarray]:
    rng = np.random.default_rng(4)
    return {i: rng.integers(0, VOCAB, n).astype(np.int32) for i, n in enumerate(LENGTHS)}


def test_reference_equals_transformers(family) -> None:
    """A bias, a norm, a window or a scaled angle is left out of the uncached model."""
    theirs, folder = family
    tokens = np.random.default_rng(1).integers(0, VOCAB, 150)
    np.testing.assert_allclose(
        logits_of(weights.load_model(folder), tokens), logits_of(theirs, tokens), atol=1e-4
    )


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_served_equals_transformers(family, name: str, decoder: str, chunk: int) -> None:
    """The cached way leaves it out, or puts it on the wrong side of the cache."""
    theirs, folder = family
    model = fuse(*weights.load(folder), torch.device("cpu"))
    known = prompts()
    with torch.inference_mode():
        found = served_logits(model, name, decoder, known, chunk)
    for i, tokens in known.items():
        expected = logits_of(theirs, tokens)
        for position, row in found[i]:
            np.testing.assert_allclose(row, expected[position], atol=2e-4, rtol=1e-4)


def test_shards_and_half_precision(tmp_path: Path) -> None:
    """A large checkpoint comes in files of bfloat16 with an index; a small one in one file."""
    theirs = checkpoint("qwen3", tmp_path / "whole")
    theirs.to(torch.bfloat16).save_pretrained(tmp_path / "parts", max_shard_size="40KB")
    assert len(list((tmp_path / "parts").glob("model-*.safetensors"))) > 2
    shape, tensors = weights.load(tmp_path / "parts")
    assert shape == read_shape(tmp_path / "whole")
    assert {t.dtype for t in tensors.values()} == {torch.float32}
    state = theirs.state_dict()
    assert all(torch.equal(tensor, state[name].float()) for name, tensor in tensors.items())
    next((tmp_path / "parts").glob("model-00002-*")).unlink()
    with pytest.raises(CheckpointError, match="model-00002-.*can't be read as safetensors"):
        weights.load(tmp_path / "parts")


def test_a_shard_that_the_index_forgot(tmp_path: Path) -> None:
    checkpoint("llama", tmp_path, max_shard_size="40KB")
    path = tmp_path / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    del index["weight_map"]["model.norm.weight"]
    path.write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"no tensor 'model\.norm\.weight'"):
        weights.load(tmp_path)
    path.write_text("{}")
    with pytest.raises(CheckpointError, match="no weight_map"):
        weights.load(tmp_path)


LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
}


def test_what_a_short_config_means() -> None:
    """An old Llama config says neither its key/value heads nor its head size."""
    assert shape_of(LLAMA) == ModelShape(
        64, 32, 48, 3, 4, 4, 8, 10_000.0, 1e-6, 2048, tie_word_embeddings=False
    )
    assert shape_of({**LLAMA, "rope_theta": 5e5, "rope_scaling": None}).rope_theta == 5e5
    mistral = {**LLAMA, "model_type": "mistral", "architectures": ["MistralForCausalLM"]}
    assert shape_of(mistral).sliding_window == 4096
    assert shape_of({**mistral, "sliding_window": None}).sliding_window == 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}, "GPT2LMHeadModel"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "LlamaForSequenceClassification"),
        ({"architectures": None, "model_type": "gemma2"}, "architecture gemma2"),
        ({"hidden_act": "gelu"}, "activation gelu"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope type linear"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope type yarn"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "differs between layers"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "llama3 without low_freq"),
        ({"partial_rotary_factor": 0.5}, "part of each head"),
        ({"num_local_experts": 8}, "mixture of experts"),
        ({"n_routed_experts": 64}, "mixture of experts"),
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "several kinds"),
        ({"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"],
          "use_sliding_window": True, "sliding_window": 64}, "sliding window in some layers"),
        ({"num_key_value_heads": 3}, "can't share"),
        ({"vocab_size": None}, "does not say vocab_size"),
        ({"hidden_size": "wide"}, "wrong kind"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_named(changes: dict, named: str) -> None:
    """Served anyway, such a checkpoint would give other logits without a word."""
    with pytest.raises(CheckpointError, match=named):
        shape_of({**LLAMA, **changes})


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_damaged_config_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json can't be read"):
        read_shape(tmp_path)


@pytest.mark.parametrize("case", ["qwen2", "qwen3", "llama 3.1"])
def test_map_check_knows_the_family(case: str, tmp_path: Path) -> None:
    """The check recomputes keys: without their bias or norm each map would look damaged, and
    with a wrong one a damaged map would pass."""
    checkpoint(case, tmp_path)
    model = fuse(*weights.load(tmp_path), torch.device("cpu"))
    run = small({"engine.check_every": 10})
    backend = Backend(model, random_prompt, PoolBudget(1 << 28), "CPU")
    with lanes(run, backend) as built:
        run_steps(built, 60)
        for engine in built.engines.values():
            assert (engine.checks_made, engine.checks_failed) == (6, 0)
        engine.forward.store.data[0, 0] *= 1.5
        engine.check_map()
        assert engine.checks_failed == 1
        assert built.comparison.compared == built.comparison.equal > 0


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_packed_output_matrix() -> None:
    """A large vocabulary's product runs another way: it must give the same numbers, and a row's
    bits must not depend on the rows beside it."""
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(9001, 48, generator=generator)
    x = torch.randn(70, 48, generator=generator)
    packed = pack(matrix)
    with torch.inference_mode():
        together = product(x, packed)
        for rows in (1, 2, 15, 16, 17, 33, 64):
            assert torch.equal(product(x[:rows].contiguous(), packed), together[:rows])
    torch.testing.assert_close(together, x @ matrix.t(), atol=1e-4, rtol=1e-4)


def test_large_vocabulary_is_packed_and_served() -> None:
    """More tokens than two bytes can number: outputs are kept in four."""
    shape = ModelShape(70_000, 32, 48, 1, 4, 2, 8, max_position_embeddings=128)
    reference = random_llama(shape)
    with torch.no_grad():
        reference.model.embed_tokens.weight[1 << 16 :] *= 3  # these are drawn more often
    model = fuse(shape, dict(reference.state_dict()), torch.device("cpu"))
    assert model.unembed_packed is not None
    backend = Backend(model, random_prompt, PoolBudget(1 << 28), "CPU")
    asked = request(0, 20, 4)
    with lanes(small({"engine.temperature": 0}), backend, ("paged",)) as built:
        engine = built.engines["paged"]
        engine.submit([asked])
        while not engine.idle:
            engine.step()
        found = np.frombuffer(engine.outputs[0], np.uint32).tolist()
    tokens = random_prompt(asked).astype(np.int64)
    for token in found:
        row = logits_of(reference, tokens)[-1].copy()
        row[256] = -np.inf  # the byte tokenizer's end
        assert token == row.argmax()
        tokens = np.append(tokens, token)
    assert len(found) == 4 and max(found) > 1 << 16
