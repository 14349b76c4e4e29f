"""How a cache is read on CUDA, as far as it can be told on the CPU: the choice, the arguments of
varlen_attn (by a reference of its contract), its signature, captured steps."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.attention.varlen import varlen_attn as torch_varlen_attn

from kvviz.caches.budget import PoolBudget
from kvviz.caches.layouts import LAYOUTS
from kvviz.caches.store import KVStore
from kvviz.engine.forward import Chunk
from kvviz.model import graphs, varlen, ways
from kvviz.model.attention import Flash, build
from kvviz.model.attention_for import attention_for, kernel_of, probe
from kvviz.model.decode_torch import TorchDecoder
from kvviz.model.graphs import bucket, decodes, padded
from kvviz.model.rows import Rows, flatten
from kvviz.model.serving import ServingModel, fuse
from kvviz.model.ways import BY_SEQUENCE, IN_PLACE, PACKED, Kernel, Way, choose
from tests.conftest import TINY, random_llama
from tests.helpers import place, request, small
from tests.model.varlen_reference import varlen_attn

CPU = torch.device("cpu")
H200 = Kernel("cuda", (9, 0), "bfloat16", 64, 0)


@pytest.mark.parametrize(("changes", "name", "reason"), [
    ({}, IN_PLACE, ""),
    ({"head_dim": 256}, IN_PLACE, ""),
    ({"dtype": "float16", "capability": (8, 0)}, IN_PLACE, ""),
    ({"block": 256}, IN_PLACE, ""),
    ({"block": 512}, IN_PLACE, ""),
    ({"block": 16}, PACKED, "block size 16 is no multiple of 256 (FlashAttention 2)"),
    ({"block": 1}, PACKED, "block size 1 is no multiple of 256 (FlashAttention 2)"),
    ({"block": 16, "flash": "FA3"}, IN_PLACE, ""),
    ({"block": 1, "flash": "FA3"}, IN_PLACE, ""),
    ({"flash": "FA3", "capability": (10, 0)}, BY_SEQUENCE,
     "compute capability 10.0, and FlashAttention 3 needs 9"),
    ({"flash": "FA4"}, IN_PLACE, ""),
    ({"flash": "FA4", "capability": (8, 9)}, BY_SEQUENCE,
     "compute capability 8.9, and FlashAttention 4 needs 9 or 10"),
    ({"flash": "FA4", "block": 128}, PACKED,
     "FlashAttention 4 reads blocks on compute capability 10 only, this is 9"),
    ({"flash": "FA4", "block": 128, "capability": (10, 0)}, IN_PLACE, ""),
    ({"flash": "FA4", "block": 16, "capability": (10, 0)}, PACKED,
     "block size 16 is not 128 (FlashAttention 4)"),
    ({"device": "cpu", "capability": (0, 0)}, BY_SEQUENCE, "varlen_attn runs on CUDA only"),
    ({"device": "rocm"}, BY_SEQUENCE, "varlen_attn runs on CUDA only"),
    ({"capability": (7, 5)}, BY_SEQUENCE,
     "compute capability 7.5, and FlashAttention needs 8.0"),
    ({"dtype": "float32"}, BY_SEQUENCE,
     "float32, and FlashAttention takes bfloat16 and float16"),
    ({"head_dim": 20}, BY_SEQUENCE, "head size 20 is no multiple of 8 up to 256"),
    ({"head_dim": 264}, BY_SEQUENCE, "head size 264 is no multiple of 8 up to 256"),
])  # fmt: skip
def test_choice(changes: dict, name: str, reason: str) -> None:
    """A kernel is called with what it can't do, or memory is copied where it need not be."""
    assert choose(H200._replace(**changes)) == Way(name, reason)


def test_choice_in_words() -> None:
    assert choose(H200).text == "varlen_attn, in place"
    assert choose(H200._replace(block=8)).text == (
        "gathered, then varlen_attn: block size 8 is no multiple of 256 (FlashAttention 2)"
    )
    assert choose(H200._replace(device="cpu")).text == (
        "gathered sequence by sequence: varlen_attn runs on CUDA only"
    )


class Served:
    """A store with scattered requests, read in a given way, beside one that gathers."""

    def __init__(self, model: ServingModel, name: str, way: str, block: int = 4) -> None:
        self.layout = LAYOUTS[name](
            small({"memory.slots": 512, "paged.block_size": block}), slot_bytes=1 << 14
        )
        table = self.layout.table
        self.store = KVStore(model.shape, 512, CPU, budget=PoolBudget(1 << 30), poison=True)
        kernel = kernel_of(model.shape, self.store, table)
        read = build(Way(way), kernel, model.shape, self.store, table, varlen_attn)
        self.decoder = TorchDecoder(model, self.store, table, read)
        self.known: dict[int, np.ndarray] = {}
        for i in (90, 91, 92):
            assert self.layout.admit(request(i, 30, 1), 30).admitted
        self.layout.release(91)

    def add(self, id: int, tokens: np.ndarray) -> None:
        assert self.layout.admit(request(id, len(tokens), 1), len(tokens)).admitted
        self.known[id] = tokens

    def rows(self, *counts: tuple[int, int]) -> Rows:
        batch = []
        for id, count in counts:
            at = self.layout.written(id)
            assert self.layout.append(id, count).admitted
            batch.append(Chunk(request(id, len(self.known[id]), 1), at, count, 1))
        place(self.layout)
        self.store.apply(self.layout.take_journal())
        return flatten(batch, self.layout.table, self.known)

    def logits(self, *counts: tuple[int, int]) -> np.ndarray:
        with torch.inference_mode():
            return self.decoder.logits(self.rows(*counts))


STEPS = (  # (request, tokens) of each step: prefill, chunks beside decodes, decodes alone
    ((3, 5), (1, 20), (2, 9)),
    ((1, 7), (2, 1), (3, 1)),
    ((2, 1), (1, 1), (3, 1)),
    ((3, 1), (2, 1), (1, 1)),
)


def fed(model: ServingModel, name: str, way: str, block: int = 4) -> Served:
    served = Served(model, name, way, block)
    rng = np.random.default_rng(5)
    for id, count in ((1, 31), (2, 17), (3, 9)):
        served.add(id, rng.integers(0, TINY.vocab_size, count).astype(np.int32))
    return served


@pytest.fixture(scope="module")
def model() -> ServingModel:
    return fuse(TINY, dict(random_llama(TINY).state_dict()), CPU)


@pytest.fixture(scope="module")
def windowed() -> ServingModel:
    shape = TINY.__class__(**{**TINY.__dict__, "sliding_window": 6})
    return fuse(shape, dict(random_llama(shape).state_dict()), CPU)


@pytest.mark.parametrize("way", [IN_PLACE, PACKED])
@pytest.mark.parametrize(
    ("name", "block"), [("contiguous", 4), ("paged", 4), ("paged", 1), ("paged", 7), ("cells", 4)]
)
@pytest.mark.parametrize("window", [False, True])
def test_varlen_equals_gathered(
    model: ServingModel, windowed: ServingModel, name: str, block: int, way: str, window: bool
) -> None:
    """A start, a length, a block or the window's edge is wrong by one."""
    used = windowed if window else model
    ours, theirs = fed(used, name, way, block), fed(used, name, BY_SEQUENCE, block)
    for step in STEPS:
        np.testing.assert_allclose(ours.logits(*step), theirs.logits(*step), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("way", [IN_PLACE, PACKED])
@pytest.mark.parametrize(("name", "block"), [("contiguous", 4), ("paged", 4), ("paged", 7)])
def test_captured_steps_equal_plain_ones(
    model: ServingModel, monkeypatch: pytest.MonkeyPatch, name: str, block: int, way: str
) -> None:
    """Padding writes where it must not, or a buffer keeps what an earlier step left in it."""
    monkeypatch.setattr(graphs, "_FEWEST_KEYS", 1)
    ours, theirs = fed(model, name, way, block), fed(model, name, BY_SEQUENCE, block)
    captured = []

    def capture(step: graphs.Step) -> graphs.Step:
        captured.append(step)
        step()  # the warm-up
        return step

    ours.decoder.capture_with(capture)
    for step in (*STEPS, ((2, 1),), ((1, 1), (2, 1)), ((2, 1), (1, 1))):
        found, expected = ours.logits(*step), theirs.logits(*step)
        np.testing.assert_allclose(found, expected, atol=2e-5, rtol=1e-4)
        np.testing.assert_array_equal(
            ours.store.view.isnan().numpy(), theirs.store.view.isnan().numpy()
        )
    # Sequences: 4 and 1; a copy's keys are 53 and 57 (64), 13 (16), and with the padding 72 (128)
    assert len(captured) == (3 if way == PACKED else 2)
    assert ours.decoder.way == f"{Way(way).text}; CUDA graphs for decode steps"


def test_a_step_that_cannot_be_captured_is_run(model: ServingModel) -> None:
    """An old driver ends the run, or is asked again at each step."""
    ours, theirs = fed(model, "paged", IN_PLACE), fed(model, "paged", BY_SEQUENCE)
    asked = []

    def capture(step: graphs.Step) -> graphs.Step:
        asked.append(step)
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    ours.decoder.capture_with(capture)
    for step in STEPS:
        np.testing.assert_allclose(ours.logits(*step), theirs.logits(*step), atol=2e-5, rtol=1e-4)
    assert len(asked) == 1
    said = "no CUDA graphs: operation not permitted when stream is capturing"
    assert ours.decoder.way == f"varlen_attn, in place; {said}"


def test_memory_that_runs_out_in_a_capture_is_told(model: ServingModel) -> None:
    """Lack of memory is taken for a driver that can't capture."""
    ours = fed(model, "paged", IN_PLACE)

    def capture(step: graphs.Step) -> graphs.Step:
        raise torch.OutOfMemoryError("CUDA out of memory")

    ours.decoder.capture_with(capture)
    ours.logits(*STEPS[0])
    with pytest.raises(torch.OutOfMemoryError):
        ours.logits(*STEPS[2])


def test_no_capture_where_sequences_are_read_one_by_one(model: ServingModel) -> None:
    ours = fed(model, "paged", BY_SEQUENCE)
    ours.decoder.capture_with(partial(pytest.fail, "captured"))
    ours.logits(*STEPS[0])
    ours.logits(*STEPS[2])


def test_arguments_of_regions(model: ServingModel) -> None:
    """Sequences stand in the order of their regions, and results in that of the batch."""
    served = fed(model, "contiguous", IN_PLACE)
    starts = {i: served.layout.slots(i).start for i in (1, 2, 3)}
    assert sorted(starts, key=starts.get) != [3, 1, 2]  # the batch below is not in order
    rows = varlen.by_address(served.rows((3, 5), (1, 20), (2, 9)), served.layout.table)
    args = varlen.of_regions(rows, served.layout.table)
    order = sorted(starts, key=starts.get)
    counts = {3: 5, 1: 20, 2: 9}
    assert args.cu_seq_q.tolist() == [0, *np.cumsum([counts[i] for i in order])]
    assert args.cu_seq_k[:-1].tolist() == [starts[i] for i in order]
    assert args.seqused_k.tolist() == [counts[i] for i in order]
    assert (args.max_q, args.max_k, args.block_table) == (20, 20, None)
    assert rows.requests[rows.last].tolist() == [3, 1, 2]


def test_arguments_of_blocks(model: ServingModel) -> None:
    """A block of an older owner stays in the table, or a block too few."""
    served = fed(model, "paged", IN_PLACE)
    rows = served.rows((3, 5), (1, 20), (2, 9))
    args = varlen.of_blocks(rows, served.layout.table, width=8)
    assert args.block_table.dtype == np.int32 and args.block_table.shape == (3, 8)
    for line, id, used in zip(args.block_table, (3, 1, 2), (5, 20, 9), strict=True):
        blocks = -(-used // 4)
        slots = served.layout.slots(id)
        at = np.arange(512)[slots] if isinstance(slots, slice) else slots
        assert line[:blocks].tolist() == (at[::4] // 4).tolist()
        assert not line[blocks:].any()
    assert args.cu_seq_k.tolist() == [0, 5, 25, 34] and args.max_k == 20


def test_padding_and_buckets() -> None:
    assert [bucket(n) for n in (1, 2, 4, 5, 64, 256, 257)] == [1, 4, 4, 16, 64, 256, 0]
    rows = Rows(
        np.array([7, 8, 9]), np.array([3, 1, 2]), np.array([5, 2, 6]), np.array([0, 1, 2]),
        np.array([50, 20, 60]), np.array([2, 0, 1]), np.array([2, 3, 1]),
    )  # fmt: skip
    assert decodes(rows)
    full = padded(rows, 5)
    assert full.tokens.tolist() == [7, 8, 8, 8, 9]
    assert full.slots.tolist() == [50, 20, 20, 20, 60]
    assert full.tokens[full.last].tolist() == rows.tokens[rows.last].tolist()
    assert varlen.bounds(full).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("block", [0, 16, 256])
def test_probe(block: int) -> None:
    """A kernel that loses rows, or isn't there, is used all the same."""
    kernel = Kernel("cuda", (9, 0), "bfloat16", 16, block)
    assert probe(kernel, CPU, varlen_attn) == ""
    lost = "varlen_attn gave other numbers than scaled_dot_product_attention here"

    def loses(q: torch.Tensor, *words: object, **named: object) -> torch.Tensor:
        out = varlen_attn(q, *words, **named)
        out[-1] = float("nan")
        return out

    assert probe(kernel, CPU, loses) == lost

    def multiplies(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *words, **named):
        """Reads all of the block or region, and weighs by 0 what is not written."""
        out = varlen_attn(q, k, v, *words, **named)
        ours = v[1] if named["block_table"] is not None else v[: len(v) // 2]
        return out + 0 * ours.sum()

    assert probe(kernel, CPU, varlen_attn, poisoned=True) == ""
    assert probe(kernel, CPU, multiplies) == ""
    assert probe(kernel, CPU, multiplies, poisoned=True) == lost

    def refuses(*_words: object, **_named: object) -> torch.Tensor:
        raise RuntimeError("Paged KV cache block size must be divisible by 256\nmore")

    assert probe(kernel, CPU, refuses) == (
        "varlen_attn says: Paged KV cache block size must be divisible by 256"
    )
    assert probe(kernel, CPU).startswith("varlen_attn says: ")  # torch's own, on the CPU


@pytest.mark.parametrize("block", [16, 256])
@pytest.mark.parametrize("flash", [ways.FLASH2, ways.FLASH3])
def test_a_faulty_way_is_left(
    model: ServingModel, monkeypatch: pytest.MonkeyPatch, block: int, flash: str
) -> None:
    """What the device refuses ends the run, though another way would do."""
    served = Served(model, "paged", BY_SEQUENCE, block)
    kernel = H200._replace(head_dim=TINY.head_dim, block=block, flash=flash)
    monkeypatch.setattr("kvviz.model.attention_for.kernel_of", lambda *_: kernel)
    parts = (TINY, served.store, served.layout.table)

    def no_blocks(*words: object, **named: object) -> torch.Tensor:
        if named["block_table"] is not None:
            raise RuntimeError("no blocks")
        return varlen_attn(*words, **named)

    def nothing(*_words: object, **_named: object) -> torch.Tensor:
        raise RuntimeError("no kernel image")

    possible = choose(kernel)
    found = attention_for(*parts, varlen_attn)
    assert found.way == possible and isinstance(found, Flash)
    refused = attention_for(*parts, no_blocks).way
    in_place = possible.name == IN_PLACE
    assert refused == (Way(PACKED, "varlen_attn says: no blocks") if in_place else possible)
    assert attention_for(*parts, nothing).way == Way(
        BY_SEQUENCE, "varlen_attn says: no kernel image"
    )


@pytest.mark.parametrize("block", [0, 256])
@pytest.mark.parametrize("flash", [ways.FLASH2, ways.FLASH3])
def test_torch_takes_the_arguments(block: int, flash: str) -> None:
    """The installed torch has another signature, or other shapes. (Its meta kernel: no numbers.)"""
    kernel = Kernel("cuda", (9, 0), "bfloat16", 16, block, flash)
    meta = torch.device("meta")
    seen = []

    def on_meta(*words: object, **named: object) -> torch.Tensor:
        def moved(word: object) -> object:
            return word.to(meta) if isinstance(word, torch.Tensor) else word

        out = torch_varlen_attn(*map(moved, words), **{k: moved(v) for k, v in named.items()})
        seen.append((tuple(out.shape), out.dtype))
        return varlen_attn(*words, **named)

    assert probe(kernel, CPU, on_meta) == ""
    assert seen == [((3, 2, 16), torch.bfloat16)]
