"""The tensors: moves, poison, tags, and the budget they are taken from."""

from __future__ import annotations

import gc
import mmap
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvviz.build import Backend, build_lanes
from kvviz.caches import budget as budgets
from kvviz.caches.budget import PoolBudget, host_memory_bytes
from kvviz.caches.store import POISONED, KVStore, tags
from kvviz.errors import CapacityError, ConfigError
from kvviz.records import Freed, Move
from kvviz.shapes import ModelShape
from tests.conftest import TINY
from tests.helpers import small

SHAPE = ModelShape(num_hidden_layers=2, num_key_value_heads=2, head_dim=2)
CPU = torch.device("cpu")


def store(slots: int, *, poison: bool = True, budget: PoolBudget | None = None) -> KVStore:
    return KVStore(SHAPE, slots, CPU, budget=budget or PoolBudget(1 << 20), poison=poison)


def filled(slots: int) -> tuple[KVStore, np.ndarray]:
    """A store of distinct numbers, and the same as numpy [L, 2, slots, H_kv, d_h]."""
    pool = store(slots)
    numbers = torch.arange(pool.view.numel(), dtype=torch.float32).view(2, 2, slots, 2, 2)
    at = torch.arange(slots)
    for layer in range(2):
        pool.write(layer, at, numbers[layer, 0], numbers[layer, 1])
    pool.tag(at.numpy(), np.full(slots, 3), at.numpy())
    return pool, numbers.numpy().copy()


@st.composite
def moves(draw: st.DrawFn) -> tuple[int, Move]:
    """(slots, a move in them): both directions, most of them overlapping, any shift from 1."""
    slots = draw(st.integers(2, 40))
    size = draw(st.integers(1, slots - 1))
    source = draw(st.integers(0, slots - size))
    target = draw(st.integers(0, slots - size).filter(lambda at: at != source))
    return slots, Move(source, target, size, 3)


@given(moves(), st.booleans())
def test_move_is_a_copy_as_if_through_a_buffer(drawn: tuple[int, Move], device: bool) -> None:
    """A move whose source and target overlap reads slots that it has already overwritten."""
    slots, move = drawn
    pool, expected = filled(slots)
    if device:  # where torch does it: no memory that could be moved as bytes
        pool._runs = pool._runs[:0]
    marks = pool.tags.copy()
    source, target = (slice(at, at + move.size) for at in (move.source, move.target))
    expected[:, :, target] = expected[:, :, source].copy()
    marks[target] = marks[source].copy()
    pool.apply([move])
    assert np.array_equal(pool.view.numpy(), expected)
    assert np.array_equal(pool.tags, marks)


@pytest.mark.parametrize("target", [0, 3, 7, 20])
def test_move_by_hand(target: int) -> None:
    """Five slots from 5 on go down or up, overlapping or not, by one slot's K of head 0."""
    pool, _ = filled(32)
    before = pool.read(1, slice(5, 10))[0].clone()
    pool.apply([Move(5, target, 5, 3)])
    assert torch.equal(pool.read(1, slice(target, target + 5))[0], before)


def test_the_tags_name_who_gets_the_copy() -> None:
    """A sample gets its own copy of another's slots, some of them not written yet: who it is must
    be told, and what is empty must stay so."""
    pool, _ = filled(8)
    pool.apply([Freed(2, 1), Move(0, 5, 3, 2**30), Move(5, 4, 3, 2**31 - 1)])
    own = tags(2**31 - 1, np.array([0, 1])).tolist()
    assert pool.tags.tolist()[4:] == [*own, -1, -1]
    assert pool.tags.tolist()[:2] == tags(3, np.array([0, 1])).tolist()


def test_moves_with_nothing_to_poison_in_between() -> None:
    """They are carried out together: one that reads what another wrote must still come after it."""
    slots = 24
    pool = store(slots, poison=False)
    numbers = torch.arange(pool.view.numel(), dtype=torch.float32).view(2, 2, slots, 2, 2)
    pool.view.copy_(numbers)
    expected = numbers.numpy().copy()
    journal = [Move(4, 2, 5, 1), Freed(7, 2), Move(2, 12, 5, 1), Move(14, 13, 8, 2), Freed(21, 1)]
    pool.apply(journal)
    for move in journal:
        if isinstance(move, Move):
            copy = expected[:, :, move.source : move.source + move.size].copy()
            expected[:, :, move.target : move.target + move.size] = copy
    assert np.array_equal(pool.view.numpy(), expected)


@pytest.mark.parametrize(
    "wrong", [Move(-1, 2, 2, 3), Move(2, -1, 2, 3), Move(7, 0, 2, 3), Move(0, 7, 2, 3)]
)
def test_a_move_out_of_the_pool(wrong: Move) -> None:
    """The bytes of somebody else would be read or written, and nobody would know."""
    pool, expected = filled(8)
    marks = pool.tags.copy()
    with pytest.raises(AssertionError, match=rf"source={wrong.source}.* leaves the pool of 8"):
        pool.apply([Move(0, 4, 2, 3), wrong])
    assert np.array_equal(pool.view.numpy(), expected)
    assert np.array_equal(pool.tags, marks)


def test_journal_order_counts() -> None:
    """Freed before Move poisons what is to be moved; the journal is not kept in order."""
    pool, numbers = filled(8)
    pool.apply([Move(0, 4, 2, 3), Freed(0, 4), Move(5, 1, 1, 3)])
    assert pool.written_map().tolist() == [
        -1,
        tags(3, np.array(1)),
        -1,
        -1,
        *tags(3, np.array([0, 1, 6, 7])).tolist(),
    ]
    assert np.array_equal(pool.read(0, slice(1, 2))[0].numpy(), numbers[0, 0, 1:2])


def test_tags_tell_requests_and_positions_apart() -> None:
    """Two tokens of a long run share a tag."""
    assert tags(5, np.array([0, 7])).tolist() == [5 << 32, (5 << 32) + 7]
    assert tags(2**30, np.array([2**31 - 1])).tolist() == [(2**30 << 32) + 2**31 - 1]


def test_slice_and_index_read_the_same() -> None:
    """The contiguous lane reads other slots than the paged lane under the same numbers."""
    pool, _ = filled(16)
    for layer in range(2):
        by_slice = pool.read(layer, slice(3, 9))
        by_index = pool.read(layer, torch.arange(3, 9))
        assert all(torch.equal(a, b) for a, b in zip(by_slice, by_index, strict=True))


def test_fresh_pool_is_empty() -> None:
    """Slots that nobody wrote count as written."""
    assert store(8).written_map().tolist() == [POISONED] * 8


@pytest.mark.parametrize("where", [(0, 0, 3, 0, 0), (1, 1, 3, 1, 1), (0, 1, 3, 0, 1)])
def test_slot_that_is_nan_in_part_is_named(where: tuple[int, ...]) -> None:
    """A single lost number in the last layer goes unseen."""
    pool, _ = filled(8)
    pool.view[where] = float("nan")
    with pytest.raises(AssertionError, match=r"slots \[3\] are NaN in part"):
        pool.written_map()


def test_without_poison_nothing_is_nan() -> None:
    """A pool that does not poison reads NaN where zeros are expected, or pays for frees."""
    pool = store(8, poison=False)
    pool.apply([Freed(0, 4)])
    assert not pool.data.isnan().any()


def test_pool_over_budget_is_refused_with_the_sizes() -> None:
    """The message leaves out what was asked for or what is left, or the refusal takes bytes.

    65,536 slots of 64 bytes (2 layers, K and V, 2 heads of 2, 4 bytes each) are 4 MiB.
    """
    budget = PoolBudget(5 << 20)
    kept = store(1 << 15, budget=budget)
    with pytest.raises(CapacityError, match=r"4 MiB does not fit.* 5 MiB and 3 MiB are left"):
        store(1 << 16, budget=budget)
    assert budget.used_bytes == kept.nbytes == 2 << 20
    store(3 << 14, budget=budget)
    assert budget.used_bytes == 5 << 20


def test_close_gives_back_once() -> None:
    """A pool that is closed twice gives back bytes of another one."""
    budget = PoolBudget(1 << 20)
    kept, closed = store(64, budget=budget), store(128, budget=budget)
    closed.close()
    closed.close()
    assert budget.used_bytes == kept.nbytes == 64 * 64
    assert closed.nbytes == 0


def test_device_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed allocation keeps its share of the budget, or shows torch's words to the user."""

    def full(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(torch, "full", full)
    budget = PoolBudget(1 << 20)
    with pytest.raises(CapacityError, match="no room for a pool of 64 slots x 64 bytes"):
        store(64, budget=budget)
    assert budget.used_bytes == 0


def test_budget_under_threads() -> None:
    """Two runs that start at once both get the last bytes."""
    budget = PoolBudget(50)
    refused: list[CapacityError] = []

    def take() -> None:
        for _ in range(20):
            try:
                budget.take(1)
            except CapacityError as error:
                refused.append(error)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (budget.used_bytes, len(refused)) == (50, 30)


def test_budget_of_the_host() -> None:
    """The budget is none of the host's memory, or more than all of it."""
    assert 0 < PoolBudget.of_host(0.5).limit_bytes < host_memory_bytes() * 0.9


def test_a_host_that_tells_nothing_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run would start where there is no /proc/meminfo."""

    def missing(*_: object, **__: object) -> None:
        raise OSError

    monkeypatch.setattr(budgets, "open", missing, raising=False)
    assert host_memory_bytes() == os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE


def test_a_budget_is_settled_once_and_only_if_none_was_given() -> None:
    """A device's limit would replace the one that a person gave, or that of the first model."""
    of_host, given = PoolBudget.of_host(), PoolBudget(100)
    for budget in (of_host, given):
        budget.settle(50)
        budget.settle(70)
    assert (of_host.limit_bytes, given.limit_bytes) == (50, 100)


def test_second_lane_over_budget_gives_the_first_back(backend: Backend) -> None:
    """A run that could not start keeps the pool of its first lane for ever."""
    tight = backend._replace(budget=PoolBudget(TINY.slot_bytes(4) * 600))
    with pytest.raises(CapacityError):
        build_lanes(small(), tight)
    assert tight.budget.used_bytes == 0
    one = build_lanes(small(), tight, ("paged",))
    assert tight.budget.used_bytes == TINY.slot_bytes(4) * 512
    one.close()
    one.close()
    assert tight.budget.used_bytes == 0


def test_context_beyond_the_model(backend: Backend) -> None:
    """Positions past the model's last one would read the rotary table out of bounds."""
    with pytest.raises(ConfigError, match="memory.context 600 is longer than the model's 512"):
        build_lanes(small({"memory.slots": 1024, "memory.context": 600}), backend)
    assert backend.budget.used_bytes == 0


def resident_bytes() -> int:
    """Memory of this process that is really taken."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def test_close_frees_the_tensors(backend: Backend) -> None:
    """The budget says that a pool of 64 MiB is gone while its memory is still taken."""
    before = resident_bytes()
    built = build_lanes(small({"memory.slots": 1 << 18}), backend, ("paged",))
    assert resident_bytes() - before > 60 << 20
    built.close()
    gc.collect()
    assert resident_bytes() - before < 30 << 20
