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
    """Each holder is a list of ids; a block's ref count is how many lists it is in. `keys` are
    the registered blocks; `idle` those of them that nobody holds, least recently used first."""

    def __init__(self) -> None:
        super().__init__()
        self.holders: list[list[int]] = []
        self.keys: dict[int, int] = {}
        self.idle: list[int] = []

    @initialize(count=sizes(24), null=st.booleans())
    def start(self, count: int, null: bool) -> None:
        self.count, self.null = count, null
        self.pool = BlockPool(count, null=null)

    @property
    def refs(self) -> Counter[int]:
        return Counter([i for ids in self.holders for i in ids] + [0] * self.null)

    @property
    def free(self) -> set[int]:
        return set(range(self.count)) - set(self.refs)

    @rule(count=st.integers(0, 12))
    def take(self, count: int) -> None:
        bare = self.free - set(self.idle)
        evicts = max(0, count - len(bare))
        if count > len(self.free):
            assert self.pool.take(count) is None
            return
        free, ids = self.free, self.pool.take(count)
        assert ids is not None and len(set(ids.tolist())) == count
        assert set(ids.tolist()) <= free
        assert self.pool.evicted == evicts
        assert ids.tolist()[count - evicts :] == self.idle[:evicts]
        self.keys = {k: b for k, b in self.keys.items() if b not in self.idle[:evicts]}
        del self.idle[:evicts]
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
        freed = [i for i in reversed(ids) if not self.refs[i]]
        known = set(self.keys.values())
        dropped = self.pool.drop(np.array(ids, np.int64))
        assert dropped.tolist() == [i for i in freed if i not in known]
        self.idle += [i for i in freed if i in known]

    @precondition(lambda self: any(self.holders))
    @rule(data=st.data(), key=st.integers(0, 15))
    def register(self, data: st.DataObject, key: int) -> None:
        """A block may be known under one key, and a key names one block: the first."""
        block = data.draw(st.sampled_from([i for ids in self.holders for i in ids]))
        self.pool.register(block, key)
        if block not in self.keys.values():
            self.keys.setdefault(key, block)

    @precondition(lambda self: self.keys)
    @rule(data=st.data())
    def share_what_is_found(self, data: st.DataObject) -> None:
        """A cached block comes back to life and is not handed out."""
        block = self.pool.find(data.draw(st.sampled_from(sorted(self.keys))))
        assert block is not None
        self.pool.share(np.array([block]))
        self.holders.append([block])
        if block in self.idle:
            self.idle.remove(block)

    @rule(data=st.data())
    def drop_a_free_block(self, data: st.DataObject) -> None:
        bare = sorted(self.free - set(self.idle))
        if bare:
            block = data.draw(st.sampled_from(bare))
            with pytest.raises(AssertionError, match=rf"share of the free block {block}$"):
                self.pool.share(np.array([block]))
            with pytest.raises(AssertionError, match=f"register of the free block {block}"):
                self.pool.register(block, 0)
        if self.free:
            block = data.draw(st.sampled_from(sorted(self.free)))
            with pytest.raises(AssertionError, match=rf"double free of \[{block}\]"):
                self.pool.drop(np.array([block]))

    @precondition(lambda self: any(self.holders))
    @rule(data=st.data())
    def drop_or_share_with_one_wrong_id(self, data: st.DataObject) -> None:
        """Refused whole: the ids that were right keep their holders."""
        ids = data.draw(st.sampled_from([ids for ids in self.holders if ids]))
        wrong = data.draw(st.sampled_from([ids[0], *sorted(self.free)]))
        at = data.draw(st.integers(0, len(ids)))
        with pytest.raises(AssertionError, match="double free"):
            self.pool.drop(np.array([*ids[:at], wrong, *ids[at:]], np.int64))
        with pytest.raises(IndexError):
            self.pool.drop(np.array([*ids, self.count], np.int64))
        if wrong not in ids and wrong not in self.idle:
            with pytest.raises(AssertionError, match=f"share of the free block {wrong}"):
                self.pool.share(np.array([*self.idle, *ids, wrong], np.int64))

    @invariant()
    def agrees(self) -> None:
        self.pool.check()
        refs = self.refs
        assert self.pool.refs.tolist() == [refs[i] for i in range(self.count)]
        assert self.pool.free_blocks == len(self.free)
        assert self.pool.usable_blocks == self.count - self.null
        assert self.pool.idle().tolist() == self.idle
        assert {k: self.pool.find(k) for k in range(16)} == {k: self.keys.get(k) for k in range(16)}

    def teardown(self) -> None:
        """Dropping all of them frees every block, once."""
        for ids in self.holders:
            self.pool.drop(np.array(ids, np.int64))
        if hasattr(self, "pool"):
            taken = self.pool.take(self.count - self.null)
            assert taken is not None
            assert sorted(taken.tolist()) == list(range(self.null, self.count))


@pytest.mark.untraced
def test_pool_against_a_counter() -> None:
    """A block is handed out twice, lost, freed while someone still holds it, or found after its
    content is gone."""
    run_state_machine_as_test(
        PoolMachine, settings=settings(max_examples=40, stateful_step_count=30)
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
    pool.refs[pool.take(1)] = 0
    with pytest.raises(AssertionError, match="3 blocks on the free list, 4 without a holder"):
        pool.check()


def test_double_free_within_one_call() -> None:
    """A block given back twice by one caller goes to two others."""
    pool = BlockPool(4)
    pool.take(1)
    with pytest.raises(AssertionError, match="double free"):
        pool.drop(np.array([0, 0]))


def test_a_refused_drop_leaves_the_order_of_reuse() -> None:
    """Blocks pushed before the fault is seen would be handed out while they are held."""
    pool = BlockPool(6)
    ids = pool.take(3)
    pool.share(ids[2:])
    for wrong in ([0, 1, 1], [0, 5, 1], [2, 0, 2], [0, 1, 2, 0, 1, 2]):
        with pytest.raises(AssertionError, match="double free"):
            pool.drop(np.array(wrong))
    assert (pool.refs.tolist(), pool.free_blocks) == ([1, 1, 2, 0, 0, 0], 3)
    assert pool.drop(ids).tolist() == [1, 0]
    assert pool.take(5).tolist() == [0, 1, 3, 4, 5]


def test_eviction_is_by_use_and_tail_first() -> None:
    """Two cached prefixes of two blocks. The one that was used last outlives the other, and of
    each the head outlives the tail; blocks without content go before any of them."""
    pool = BlockPool(6)
    first, second = pool.take(2), pool.take(2)
    for key, block in enumerate([*first, *second]):
        pool.register(int(block), key)
    pool.drop(second)
    pool.drop(first)
    assert pool.idle().tolist() == [3, 2, 1, 0]
    pool.share(second)
    assert (pool.idle().tolist(), pool.free_blocks) == ([1, 0], 4)
    pool.drop(second)
    assert pool.idle().tolist() == [1, 0, 3, 2]
    assert (pool.take(1).tolist(), pool.evicted) == ([4], 0)
    assert (pool.take(3).tolist(), pool.evicted) == ([5, 1, 0], 2)
    assert [pool.find(key) for key in range(4)] == [None, None, 2, 3]


def test_null_block_is_never_handed_out() -> None:
    """vLLM keeps block 0 for padding: a pool of four serves three."""
    pool = BlockPool(4, null=True)
    assert (pool.free_blocks, pool.usable_blocks) == (3, 3)
    assert pool.take(4) is None
    assert sorted(pool.take(3).tolist()) == [1, 2, 3]
    assert pool.refs.tolist() == [1, 1, 1, 1]
    pool.check()


def test_double_free_names_the_blocks() -> None:
    """Freed twice, the gauge would show less than nothing in use; the ids tell whose fault."""
    pool = BlockPool(8)
    ids = pool.take(4)
    pool.drop(ids)
    with pytest.raises(AssertionError, match=r"double free of \[1 2\]"):
        pool.drop(ids[1:3])
    assert pool.free_blocks == 8
    pool.check()
