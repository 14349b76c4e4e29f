"""Serving against the plain model: whole generations, other libraries, and bitwise batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from kvviz.caches.budget import PoolBudget
from kvviz.caches.layout import Layout
from kvviz.caches.layouts import LAYOUTS
from kvviz.caches.store import KVStore
from kvviz.engine.engine import Engine
from kvviz.engine.forward import Chunk
from kvviz.engine.recorder import Recorder
from kvviz.model import kernels
from kvviz.model.decode_cpu import CpuDecoder
from kvviz.model.decode_torch import TorchDecoder
from kvviz.model.forward import ModelForward
from kvviz.model.llama import Llama
from kvviz.model.rows import flatten
from kvviz.model.serving import ServingModel, fuse
from kvviz.model.tokens import ByteTokenizer
from kvviz.model.weights import config_of
from kvviz.shapes import END_OF_TEXT, ModelShape
from tests.conftest import TINY, random_llama, random_prompt
from tests.helpers import place, request, small

CPU = torch.device("cpu")
BLOCKS = (1, 3, 16)
LAYOUT_BLOCKS = [("contiguous", 16), ("cells", 16), *(("paged", block) for block in BLOCKS)]
DECODERS = {"cpu": CpuDecoder, "torch": TorchDecoder}


class Cache:
    """A decoder over a store and a layout, fed chunk by chunk by hand."""

    def __init__(self, model: ServingModel, name: str, block: int, decoder: str = "cpu",
                 slots: int = 512) -> None:  # fmt: skip
        run = small({"memory.slots": slots, "paged.block_size": block})
        self.layout: Layout = LAYOUTS[name](run)
        self.store = KVStore(model.shape, slots, CPU, budget=PoolBudget(1 << 30), poison=True)
        self.decoder = DECODERS[decoder](model, self.store, self.layout.table)
        self.known: dict[int, np.ndarray] = {}

    def admit(self, id: int, tokens: np.ndarray) -> None:
        assert self.layout.admit(request(id, len(tokens), 1), len(tokens)).admitted
        self.known[id] = tokens.astype(np.int32)

    def scatter(self) -> None:
        """Requests that came and went: the next ones lie in scattered places."""
        for id in range(1000, 1006):
            self.admit(id, np.zeros(9))
        for id in (1000, 1003, 1001):
            self.layout.release(id)

    def logits(self, *parts: tuple[int, int]) -> np.ndarray:
        """Write the next `count` tokens of each (id, count); a row of logits for each."""
        batch = [Chunk(request(id, len(self.known[id]), 1), self.layout.written(id), count, True)
                 for id, count in parts]  # fmt: skip
        for id, count in parts:
            assert self.layout.append(id, count).admitted
        place(self.layout)
        self.store.apply(self.layout.take_journal())
        with torch.inference_mode():
            return self.decoder.logits(flatten(batch, self.layout.table, self.known)).copy()


def uncached(model: Llama, tokens: np.ndarray) -> np.ndarray:
    """Logits [tokens, vocab] in one pass, without any cache."""
    with torch.inference_mode():
        return model(torch.from_numpy(tokens.astype(np.int64))[None])[0].numpy()


def some_tokens(count: int, seed: int = 0, vocab: int = 257) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, vocab, count)


def test_reference_equals_transformers(llama: Llama) -> None:
    """Our own reference is another model, and everything that is compared with it as well."""
    theirs = LlamaForCausalLM(LlamaConfig(**config_of(TINY))).eval()
    weights = dict(llama.state_dict())
    theirs.load_state_dict(weights | {"lm_head.weight": weights["model.embed_tokens.weight"]})
    tokens = some_tokens(300)
    with torch.inference_mode():
        expected = theirs(torch.from_numpy(tokens)[None]).logits[0].numpy()
    np.testing.assert_allclose(uncached(llama, tokens), expected, atol=1e-4, rtol=1e-4)


def test_weights_of_the_tests_make_attention_matter(llama: Llama) -> None:
    """With weights so small that logits hardly depend on the past, every test below passes."""
    tokens = some_tokens(60)
    other = tokens.copy()
    other[[3, 4]] = other[[4, 3]]
    difference = np.abs(uncached(llama, tokens)[-1] - uncached(llama, other)[-1]).max()
    assert difference > 0.02


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(("name", "block"), LAYOUT_BLOCKS)
def test_token_by_token_and_in_chunks(llama: Llama, serving: ServingModel, name: str, block: int,
                                      decoder: str) -> None:  # fmt: skip
    """A cached pass leaves out, repeats or shifts a token; two sequences grow side by side, one
    by tokens and one by chunks, and each chunk's last row is compared."""
    cache = Cache(serving, name, block, decoder)
    cache.scatter()
    one, two = some_tokens(30, 1), some_tokens(90, 2)
    cache.admit(1, one)
    cache.admit(2, two)
    first, second = uncached(llama, one), uncached(llama, two)
    for step in range(30):
        rows = cache.logits((1, 1), (2, 3))
        np.testing.assert_allclose(rows[0], first[step], atol=1e-4, rtol=1e-4)
        np.testing.assert_allclose(rows[1], second[3 * step + 2], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize(("name", "block"), LAYOUT_BLOCKS)
def test_greedy_generation_equals_the_uncached_model(llama: Llama, serving: ServingModel, name: str,
                                                     block: int, decoder: str) -> None:  # fmt: skip
    """A served request gets other tokens than the model alone would give it.

    Three requests in one engine, prefilled in chunks of a budget of 16 tokens, 25 tokens each.
    """
    run = small({"paged.block_size": block, "engine.token_budget": 16, "engine.temperature": 0})
    layout = LAYOUTS[name](run)
    store = KVStore(TINY, 512, CPU, budget=PoolBudget(1 << 30), poison=True)
    forward = ModelForward(serving, store, layout, prompts=random_prompt, temperature=0, seed=1,
                           bans_end=True, plain=decoder == "torch")  # fmt: skip
    engine = Engine(name, layout, forward, run, store.slot_bytes, Recorder(512))
    asked = [request(i, prompt, 25) for i, prompt in enumerate((40, 3, 21))]
    engine.submit(asked)
    while not engine.idle:
        engine.step()
    for r in asked:
        found = np.frombuffer(engine.outputs[r.id], np.uint16).tolist()
        assert found == greedy(llama, random_prompt(r), 25)


def greedy(model: Llama, prompt: np.ndarray, count: int) -> list[int]:
    """The most likely tokens one after the other, end of text excepted."""
    tokens = prompt.astype(np.int64)
    for _ in range(count):
        row = uncached(model, tokens)[-1].copy()
        row[END_OF_TEXT] = -np.inf
        tokens = np.append(tokens, row.argmax())
    return tokens[len(prompt):].tolist()  # fmt: skip


@pytest.fixture(scope="module", params=["tiny", "shipped"])
def any_shape(request: pytest.FixtureRequest) -> ServingModel:
    """The tests' shape, and that of the model that ships: their products run other kernels."""
    shape = TINY if request.param == "tiny" else ModelShape(max_position_embeddings=512)
    return fuse(shape, dict(random_llama(shape).state_dict()), CPU)


def test_row_alone_and_among_others(any_shape: ServingModel) -> None:
    """A row's bits depend on how many rows are beside it, so two lanes drift apart.

    The same 20 tokens, then one more, with 0 to 40 decoding neighbours and up to 300 rows of a
    neighbour's prefill, in front of it or behind it.
    """
    tokens = some_tokens(21, 7)
    found = set()
    for others, prefill in [*((n, 0) for n in range(41)), (0, 100), (2, 255), (40, 300)]:
        cache = Cache(any_shape, "paged", 4, slots=1024)
        cache.admit(500, tokens)
        for id in range(others):
            cache.admit(id, some_tokens(1 + id % 5, id))
        cache.admit(900, some_tokens(max(prefill, 1), 9))
        behind = [(900, prefill)] if prefill else []
        before = cache.logits((500, 20), *behind)[0]
        parts = [(id, 1) for id in range(others)]
        rows = cache.logits(*parts[: others // 2], (500, 1), *parts[others // 2 :])
        found.add(before.tobytes() + rows[others // 2].tobytes())
    assert len(found) == 1


def test_row_in_a_prefill_and_alone(any_shape: ServingModel) -> None:
    """A recomputed token (a prefill row) has other bits than when it was decoded alone."""
    tokens = some_tokens(70, 3)
    decoded, chunked, whole = (Cache(any_shape, "contiguous", 16) for _ in range(3))
    for cache in (decoded, chunked, whole):
        cache.admit(0, tokens)
    rows = [decoded.logits((0, 1))[0] for _ in range(70)]
    pieces = [chunked.logits((0, count))[0] for count in (17, 30, 22, 1)]
    assert [p.tobytes() for p in pieces] == [rows[i].tobytes() for i in (16, 46, 68, 69)]
    assert whole.logits((0, 70))[0].tobytes() == rows[69].tobytes()


@pytest.mark.parametrize("block", [1, 2, 3, 5, 7, 16, 64, 256])
def test_block_size_changes_no_bit(any_shape: ServingModel, block: int) -> None:
    """Attention adds up in another order when the sequence lies in pieces."""
    tokens = some_tokens(200, 4)
    whole, pieces = Cache(any_shape, "contiguous", 16), Cache(any_shape, "paged", block)
    for cache in (whole, pieces):
        cache.admit(0, tokens)
    for count in (64, 135, 1):
        assert whole.logits((0, count)).tobytes() == pieces.logits((0, count)).tobytes()


def test_stale_slots_do_not_reach_the_logits(serving: ServingModel) -> None:
    """A read past the written slots would find NaN or another request's keys."""
    clean, used = Cache(serving, "paged", 16), Cache(serving, "paged", 16)
    used.admit(7, some_tokens(200, 8))
    used.logits((7, 200))
    used.store.poisons = False  # what 7 wrote stays where it was
    used.layout.release(7)
    for cache in (clean, used):
        cache.admit(0, some_tokens(37, 9))
    assert clean.logits((0, 37)).tobytes() == used.logits((0, 37)).tobytes()


def draw(logits: np.ndarray, temperature: float, *, seed: int = 1, requests: object = 0,
         positions: object = 0, banned: int = -1) -> np.ndarray:  # fmt: skip
    """One token a row; `requests` and `positions` are numbers or arrays [rows]."""
    rows = len(logits)
    out = np.full(rows, -5, np.int64)
    bans = np.array([banned] if banned >= 0 else [], np.int64)
    kernels.sample(logits.copy(), temperature, seed,
                   *(np.broadcast_to(np.asarray(a, np.int64), rows).copy()
                     for a in (requests, positions)), bans, out)  # fmt: skip
    return out


def some_logits(rows: int, vocab: int = 257, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, (rows, vocab)).astype(np.float32)


@pytest.mark.parametrize("temperature", [0.0, 1e-6])
def test_cold_sampling_is_argmax(temperature: float) -> None:
    """Greedy takes another token than the most likely one, or the last of two equal ones."""
    logits = some_logits(40)
    assert draw(logits, temperature).tolist() == logits.argmax(1).tolist()
    assert draw(np.zeros((1, 9), np.float32), 0).tolist() == [0]


@pytest.mark.parametrize("temperature", [0.0, 0.8, 4.0])
@pytest.mark.parametrize("banned", [0, 100, 256])
def test_banned_token_is_never_drawn(temperature: float, banned: int) -> None:
    """End of text ends a request whose length comes from the mix."""
    logits = some_logits(500)
    logits[:, banned] += 20
    drawn = draw(logits, temperature, positions=np.arange(500), banned=banned)
    assert banned not in drawn
    logits[:, banned] = -np.inf
    if temperature == 0:
        assert drawn.tolist() == logits.argmax(1).tolist()


def test_draw_depends_on_seed_request_and_position_only() -> None:
    """The row's place in the batch, or its neighbours, decide the token: lanes drift apart."""
    logits = some_logits(64)
    ids, at = np.arange(64) // 8, np.arange(64) % 8
    sample = partial(draw, temperature=0.9)
    together = sample(logits, requests=ids, positions=at)
    order = np.random.default_rng(1).permutation(64)
    shuffled = sample(logits[order], requests=ids[order], positions=at[order])
    assert shuffled.tolist() == together[order].tolist()
    alone = [int(sample(logits[i : i + 1], requests=ids[i], positions=at[i])[0]) for i in range(64)]
    assert alone == together.tolist()
    flat = np.zeros((64, 257), np.float32)
    for other in ({"seed": 2}, {"requests": ids + 8}, {"positions": at + 8}):
        changed = sample(flat, **{"requests": ids, "positions": at, **other})
        assert (changed != sample(flat, requests=ids, positions=at)).mean() > 0.9


@pytest.mark.parametrize(("over", "count"), [("requests", 8000), ("positions", 8000)])
def test_draws_follow_softmax(over: str, count: int) -> None:
    """Chi-square over 8 tokens stays under 24.3 (7 degrees of freedom, p = 0.001), whichever part
    of the key runs; temperature 2 flattens the shares as it should."""
    row = np.array([[3, 2.5, 2, 1, 0.5, 0, -1, -2]], np.float32)
    for temperature in (1.0, 2.0):
        weights = np.exp(row[0].astype(np.float64) / temperature)
        expected = count * weights / weights.sum()
        drawn = draw(row.repeat(count, 0), temperature, **{over: np.arange(count)})
        found = np.bincount(drawn, minlength=8)
        assert ((found - expected) ** 2 / expected).sum() < 24.3


def test_draws_of_neighbours_are_independent() -> None:
    """The token at position i tells the one at i + 1, or that of request r the one of r + 1."""
    flat = np.zeros((4096, 16), np.float32)
    index = np.arange(4096)
    for key in ({"positions": index}, {"requests": index}):
        drawn = draw(flat, 1.0, **key)
        pairs = Counter(zip(drawn[:-1].tolist(), drawn[1:].tolist(), strict=True))
        expected = 4095 / 256
        assert sum((pairs[a, b] - expected) ** 2 / expected
                   for a in range(16) for b in range(16)) < 331  # fmt: skip


class Letters(ByteTokenizer):
    """Shows each token as a letter, so that text by the wrong tokenizer is seen."""

    end_tokens = frozenset({40, 41})

    def decode(self, tokens: Iterable[int]) -> bytes:
        return bytes(97 + token % 26 for token in tokens)


@pytest.mark.parametrize("ends", ["mix", "model"])
def test_text_and_ends_are_the_models_own(llama: Llama, ends: str) -> None:
    """Text comes from another tokenizer, or one of several ends is drawn or overlooked."""
    model = fuse(TINY, dict(llama.state_dict()), CPU, Letters())
    run = small({"engine.ends": ends, "engine.temperature": 1.0})
    layout = LAYOUTS["paged"](run)
    store = KVStore(TINY, 512, CPU, budget=PoolBudget(1 << 30), poison=True)
    forward = ModelForward(model, store, layout, prompts=random_prompt, temperature=4.0, seed=3,
                           bans_end=ends == "mix")  # fmt: skip
    engine = Engine("paged", layout, forward, run, store.slot_bytes, Recorder(512))
    asked = [request(i, 5, 100) for i in range(4)]
    engine.submit(asked)
    engine.step()
    prompt, output = forward.text(2)
    assert prompt == Letters().decode(random_prompt(asked[2]).tolist())
    assert len(output) == 1
    while not engine.idle:
        engine.step()
    for r in asked:
        tokens = np.frombuffer(engine.outputs[r.id], np.uint16).tolist()
        at = [i for i, token in enumerate(tokens) if token in Letters.end_tokens]
        if ends == "mix":
            assert (len(tokens), at) == (100, [])
        else:
            assert at == [len(tokens) - 1] or (len(tokens), at) == (100, [])
    assert ends == "mix" or engine.generated < 400
