"""Cached = uncached = transformers, for every layout and both decoders."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kvviz.caches.budget import PoolBudget
from kvviz.caches.layouts import LAYOUTS
from kvviz.caches.virtual_store import store_for
from kvviz.engine.forward import Chunk
from kvviz.model import kernels
from kvviz.model.decode_cpu import CpuDecoder
from kvviz.model.decode_torch import TorchDecoder
from kvviz.model.llama import Llama
from kvviz.model.rows import flatten
from kvviz.model.serving import SHIPPED, ServingModel, fuse
from kvviz.model.weights import config_of, load
from kvviz.shapes import ModelShape
from tests.helpers import place, request, small

LENGTHS = (37, 5, 70, 16)
DECODERS = {"cpu": CpuDecoder, "torch": TorchDecoder}


def served_logits(
    model: ServingModel, name: str, decoder: str, known: dict[int, np.ndarray], chunk: int
) -> dict[int, np.ndarray]:
    """Logits after each chunk of each sequence, [tokens, vocab] where chunks end; all sequences
    in one batch, interleaved with requests that come and go, so that memory is scattered."""
    # Pages of 4 slots: ranges of several pages, which don't end where the system's pages do
    layout = LAYOUTS[name](small({"paged.block_size": 4}), slot_bytes=(1 << 16) // 4)
    store = store_for(
        layout, model.shape, torch.device("cpu"), budget=PoolBudget(1 << 30), poison=True
    )
    run = DECODERS[decoder](model, store, layout.table)
    requests = {i: request(i, n, 1) for i, n in enumerate(LENGTHS)}
    for i in (90, 91, 92):
        assert layout.admit(request(i, 30, 1), 30).admitted
    layout.release(91)
    for r in requests.values():
        assert layout.admit(r, r.prompt_len).admitted
    found: dict[int, list] = {i: [] for i in requests}
    at = dict.fromkeys(requests, 0)
    while any(at[i] < n for i, n in enumerate(LENGTHS)):
        batch = []
        for i, r in requests.items():
            count = min(chunk, r.prompt_len - at[i])
            if count > 0:
                assert layout.append(i, count).admitted
                batch.append(Chunk(r, at[i], count, True))
        place(layout)
        store.apply(layout.take_journal())
        logits = run.logits(flatten(batch, layout.table, known))
        for part, row in zip(batch, logits, strict=True):
            at[part.request.id] += part.length
            found[part.request.id].append((at[part.request.id] - 1, row.copy()))
    return found


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("chunk", [1, 7, 512])
def test_cached_equals_uncached(
    llama: Llama, shape: ModelShape, name: str, decoder: str, chunk: int
) -> None:
    """A wrong slot, position or mask shows in the logits of some token."""
    model = fuse(shape, dict(llama.state_dict()), torch.device("cpu"))
    rng = np.random.default_rng(chunk)
    known = {i: rng.integers(0, 257, n).astype(np.int32) for i, n in enumerate(LENGTHS)}
    with torch.inference_mode():
        found = served_logits(model, name, decoder, known, chunk)
        for i, tokens in known.items():
            expected = llama(torch.from_numpy(tokens.astype(np.int64))[None])[0].numpy()
            for position, row in found[i]:
                np.testing.assert_allclose(row, expected[position], atol=2e-3, rtol=1e-4)


def test_shipped_model_equals_transformers() -> None:
    """The weights in data/model must mean the same to others."""
    shape, weights = load(SHIPPED)
    theirs = LlamaForCausalLM(LlamaConfig(**config_of(shape))).eval()
    theirs.load_state_dict(weights | {"lm_head.weight": weights["model.embed_tokens.weight"]})
    model = fuse(shape, weights, torch.device("cpu"))
    rng = np.random.default_rng(0)
    known = {i: rng.integers(0, 257, n).astype(np.int32) for i, n in enumerate(LENGTHS)}
    with torch.inference_mode():
        for name in LAYOUTS:
            found = served_logits(model, name, "cpu", known, 512)
            for i, tokens in known.items():
                row = theirs(torch.from_numpy(tokens.astype(np.int64))[None]).logits[0, -1]
                np.testing.assert_allclose(found[i][-1][1], row.numpy(), atol=2e-3, rtol=1e-3)


def test_rows_do_not_depend_on_the_batch(serving: ServingModel) -> None:
    """Two lanes with different batches would drift apart: equal to the bit, alone or among
    others."""
    rng = np.random.default_rng(5)
    tokens = {i: rng.integers(0, 257, 40).astype(np.int32) for i in range(24)}

    def last(ids: list[int], name: str) -> dict[int, bytes]:
        layout = LAYOUTS[name](small({"memory.slots": 2048}))
        store = store_for(
            layout, serving.shape, torch.device("cpu"), budget=PoolBudget(1 << 30), poison=False
        )
        batch = []
        for i in ids:
            assert layout.admit(request(i, 40, 1), 40).admitted
            layout.append(i, 40)
            batch.append(Chunk(request(i, 40, 1), 0, 40, True))
        place(layout)
        store.apply(layout.take_journal())
        rows = flatten(batch, layout.table, tokens)
        logits = CpuDecoder(serving, store, layout.table).logits(rows)
        return {i: row.tobytes() for i, row in zip(ids, logits, strict=True)}

    with torch.inference_mode():
        everyone = last(list(tokens), "contiguous")
        for ids in ([3], [3, 9], list(range(3, 20))):
            for name in LAYOUTS:
                for i, row in last(ids, name).items():
                    assert row == everyone[i]


def draw(
    logits: np.ndarray, temperature: float, positions: np.ndarray, banned: int = -1, seed: int = 1
) -> np.ndarray:
    out = np.empty(len(logits), np.int64)
    requests = np.zeros(len(logits), np.int64)
    bans = np.array([banned] if banned >= 0 else [], np.int64)
    kernels.sample(logits.copy(), temperature, seed, requests, positions, bans, out)
    return out


def test_sampling() -> None:
    """Greedy is the maximum; a ban holds; the draw follows softmax and the key alone."""
    logits = np.log(np.array([[0.5, 0.3, 0.2, 0.0001]], np.float32))
    many = logits.repeat(20_000, 0)
    at = np.arange(20_000)
    assert draw(logits, 0, at[:1]).tolist() == [0]
    assert draw(logits, 0, at[:1], banned=0).tolist() == [1]
    drawn = draw(many, 1.0, at)
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2, 0], atol=0.02)
    assert np.array_equal(drawn, draw(many, 1.0, at))
    assert not np.array_equal(drawn, draw(many, 1.0, at, seed=2))
    assert 1 not in draw(many, 1.0, at, banned=1)
