"""The lesson's pool on real tensors: what its check would miss, and what it gives back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvviz.caches.budget import PoolBudget
from kvviz.errors import CapacityError
from kvviz.lesson.pool import SLOTS, Bench
from kvviz.lesson.sequence import ASK, LATE, holed, in_turns
from kvviz.shapes import ModelShape

SMALL = ModelShape(num_hidden_layers=2, num_key_value_heads=1, head_dim=4)
SLIDE = {"contiguous.compaction": "on_refusal", "contiguous.compact_by": "slide"}


@pytest.fixture
def bench() -> Bench:
    return Bench(SMALL, torch.device("cpu"), PoolBudget(1 << 22))


def test_values_are_found_after_a_move(bench):
    """Compaction would copy the wrong slots, or the check look at the old ones."""
    with holed(bench, "contiguous", SLIDE) as pool:
        old = pool.store.view[:, :, 1024:2048].clone()  # b
        verdict = pool.admit(LATE, ASK)
        assert (verdict.kind, verdict.moved) == ("admitted", 4096)
        assert [tuple(move)[:3] for move in pool.moves] == [
            (1024, 0, 1024), (3072, 1024, 1024), (5120, 2048, 1024), (7168, 3072, 1024)
        ]  # fmt: skip
        assert torch.equal(pool.store.view[:, :, :1024], old)
        assert pool.slots(LATE).tolist() == list(range(4096, 6144))
        assert pool.check() == (6144, True, True)


@pytest.mark.parametrize("slot", [1024, 8191])
def test_one_changed_number_is_found(bench, slot):
    """The page would say "equal" of tensors that are not."""
    with holed(bench) as pool:
        pool.store.view[1, 1, slot, 0, 3] += 1
        assert pool.check() == (4096, False, True)


def test_a_slot_lost_from_the_tensors_is_found(bench):
    """The page would say that the map is the tensors' when it is not."""
    with holed(bench) as pool:
        pool.store.view[:, :, 1500] = float("nan")
        assert pool.check() == (4096, False, False)


def test_turns_scatter_the_blocks(bench):
    """Every sequence would lie in one piece, and the lines show nothing."""
    with in_turns(bench, 16) as pool:
        assert pool.layout.free == SLOTS // 2
        starts = pool.slots("b")[::64]
        assert np.diff(starts).tolist() == [512] * 15
        assert pool.admit(LATE, ASK).admitted and not pool.moves
        assert pool.check() == (6144, True, True)


def test_the_tensors_go_back(bench):
    """Every press of a button would take another pool from the lanes."""
    with bench.pool() as pool:
        assert bench.budget.used_bytes == SLOTS * pool.slot_bytes == pool.store.nbytes
    assert bench.budget.used_bytes == 0
    with pytest.raises(CapacityError):
        Bench(SMALL, torch.device("cpu"), PoolBudget(1000)).pool()
