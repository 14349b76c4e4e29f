"""The block pool against a Counter of holders."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvviz.allocators.blocks import BlockPool
from tests.strategies import sizes


class PoolMachine(RuleBasedStateMachine):
    """Each holder is a list of ids; a block's ref count is how many lists it is in."""

    def __init__(self) -> None:
        super().__init__()
        self.holders: list[list[int]] = []

    @initialize(count=sizes(24))
    def start(self, count: int) -> None:
        self.count = count
        self.pool = BlockPool(count)

    @property
    def refs(self) -> Counter[int]:
        return Counter(i for ids in self.holders for i in ids)

    @rule(count=st.integers(0, 12))
    def take(self, count: int) -> None:
        free = set(range(self.count)) - set(self.refs)
        ids = self.pool.take(count)
        if count > len(free):
            assert ids is None
            return
        assert ids is not None and len(set(ids.tolist())) == count
        assert set(ids.tolist()) <= free
        self.holders.append(ids.tolist())

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        ids = data.draw(st.sampled_from(self.holders))
        kept = ids[: data.draw(st.integers(0, len(ids)))]
        self.pool.share(np.array(kept, np.int64))
        self.holders.append(kept)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        ids = self.holders.pop(data.draw(st.integers(0, len(self.holders) - 1)))
        expected = [i for i in reversed(ids) if not self.refs[i]]
        assert self.pool.drop(np.array(ids, np.int64)).tolist() == expected

    @rule(data=st.data())
    def drop_a_free_block(self, data: st.DataObject) -> None:
        free = sorted(set(range(self.count)) - set(self.refs))
        if free:
            block = np.array([data.draw(st.sampled_from(free))])
            with pytest.raises(AssertionError, match="double free"):
                self.pool.drop(block)
            with pytest.raises(AssertionError, match="share of a free block"):
                self.pool.share(block)

    @invariant()
    def agrees(self) -> None:
        self.pool.check()
        refs = self.refs
        assert self.pool.refs.tolist() == [refs[i] for i in range(self.count)]
        assert self.pool.free_blocks == self.count - len(refs)

    def teardown(self) -> None:
        """Dropping all of them frees every block, once."""
        for ids in self.holders:
            self.pool.drop(np.array(ids, np.int64))
        if hasattr(self, "pool"):
            taken = self.pool.take(self.count)
            assert taken is not None and sorted(taken.tolist()) == list(range(self.count))


def test_pool_against_a_counter() -> None:
    """A block is handed out twice, lost, or freed while someone still holds it."""
    run_state_machine_as_test(
        PoolMachine, settings=settings(max_examples=60, stateful_step_count=30)
    )


def test_order_of_reuse() -> None:
    """Fresh blocks go in ascending order; of freed ones, the head of the last sequence first."""
    pool = BlockPool(6)
    first, second = pool.take(2), pool.take(2)
    assert (first.tolist(), second.tolist()) == ([0, 1], [2, 3])
    pool.drop(first)
    pool.drop(second)
    assert pool.take(5).tolist() == [2, 3, 0, 1, 4]


def test_check_finds_a_lost_block() -> None:
    """A leak of blocks goes unseen until the pool runs dry."""
    pool = BlockPool(4)
    pool.free_blocks -= 1
    with pytest.raises(AssertionError, match="3 blocks on the free list, 4 without a holder"):
        pool.check()


def test_double_free_within_one_call() -> None:
    """A block given back twice by one caller goes to two others."""
    pool = BlockPool(4)
    pool.take(1)
    with pytest.raises(AssertionError, match="double free"):
        pool.drop(np.array([0, 0]))
