"""The GPU's benchmark, as far as it goes without one: steps are served on the CPU, floors are
arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kvviz.bench import cuda
from kvviz.bench.cuda import LANES, Card, Step, figures, measure_step, weight_bytes
from kvviz.bench.suite import run_benches
from kvviz.model.serving import fuse
from tests.conftest import TINY, random_llama

CARD = Card(bandwidth=4e12, launch=5e-6, graph_launch=1e-6)


def test_floors() -> None:
    """The wrong launch cost, or bytes over bytes."""
    step = Step(0.003, 400, 8 * 10**9, "varlen_attn, in place")
    assert step.floors(CARD) == pytest.approx((0.002, 0.002))
    captured = step._replace(way="varlen_attn, in place; CUDA graphs for decode steps")
    assert captured.floors(CARD) == pytest.approx((0.002, 0.0004))
    failed = step._replace(way="varlen_attn, in place; no CUDA graphs: why")
    assert failed.floors(CARD) == pytest.approx((0.002, 0.002))


def test_figures(capsys: pytest.CaptureFixture) -> None:
    """A ratio is taken of the smaller floor, or of another lane."""
    steps = {
        lane: Step(seconds, 100, 4 * 10**9, "a way")
        for lane, seconds in zip(LANES, (0.0012, 0.0013, 0.0024), strict=True)
    }
    found = {figure.name: figure for figure in figures("a model", 16, steps, CARD)}
    assert found["a model, batch 16, contiguous: step over the larger floor"].value == 1.2
    assert found["a model, batch 16, contiguous: step over the larger floor"].holds
    assert not found["a model, batch 16, paged by 16: step over the larger floor"].holds
    assert found["a model, batch 16: paged by 256 over contiguous"].value == pytest.approx(13 / 12)
    assert not found["a model, batch 16: paged by 16 over contiguous"].holds
    assert "a model, batch 16, contiguous: a way" in capsys.readouterr().out


def test_weights_that_a_step_reads() -> None:
    """float32: all weights, the tied embedding once."""
    llama = random_llama(TINY)
    model = fuse(TINY, dict(llama.state_dict()), torch.device("cpu"))
    count = sum(p.numel() for p in llama.parameters())
    assert TINY.tie_word_embeddings and weight_bytes(model) == 4 * count


@pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.title)
def test_a_step_is_measured(lane: cuda.Lane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prefill is taken for decoding, or the count of bytes for another step's."""
    monkeypatch.setattr(cuda, "PROMPT", 20)
    monkeypatch.setattr(cuda, "NEW_TOKENS", 16)
    model = fuse(TINY, dict(random_llama(TINY).state_dict()), torch.device("cpu"))

    def kernels(step: Callable[[], object]) -> int:
        step()
        return 7

    found = measure_step(model, lane, 3, kernels)
    assert found.kernels == 7 and found.seconds > 0 and found.way == "CPU kernels, in place"
    slots, rest = divmod(found.read_bytes - weight_bytes(model), TINY.slot_bytes(4))
    # The prompts in the first of 8 timed steps, a token each in the others and in the counted one
    assert (slots, rest) == (3 * (20 + 8), 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="what it says without a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture) -> None:
    report = run_benches(["cuda"])
    assert (report["figures"], report["left_out"]) == ({}, {"cuda": "torch sees no GPU here"})
    assert "  left out: torch sees no GPU here" in capsys.readouterr().out.splitlines()
