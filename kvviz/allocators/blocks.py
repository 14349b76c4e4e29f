"""A pool of fixed-size blocks with ref counts. Integers only.

The free list is a stack: the block that was freed last is handed out first, as serving engines
do for blocks without a cached prefix. So a sequence's blocks scatter over the pool, and that is
harmless: the block table puts them in order.
"""

from __future__ import annotations

import numpy as np


class BlockPool:
    """`count` blocks. `refs[i]` is how many sequences hold block i; 0 is free."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.refs = np.zeros(count, np.int32)
        # The top of the stack is the end of the array; block 0 goes first.
        self._stack = np.arange(count - 1, -1, -1, dtype=np.int32)
        self.free_blocks = count

    def take(self, count: int) -> np.ndarray | None:
        """Ids [count] of blocks that are now held once, or None when fewer are free."""
        if count > self.free_blocks:
            return None
        top = self.free_blocks
        ids = self._stack[top - count : top][::-1].copy()
        self.free_blocks = top - count
        self.refs[ids] = 1
        return ids

    def share(self, ids: np.ndarray) -> None:
        """One more holder for each of these live blocks."""
        assert (self.refs[ids] > 0).all(), "share of a free block"
        self.refs[ids] += 1

    def drop(self, ids: np.ndarray) -> np.ndarray:
        """One holder less for each; returns the ids that became free.

        Blocks are pushed tail first, so that the head of a sequence is reused first.
        """
        assert len(np.unique(ids)) == len(ids), f"double free: a block stands twice in {ids}"
        assert (self.refs[ids] > 0).all(), f"double free of {ids[self.refs[ids] <= 0]}"
        self.refs[ids] -= 1
        freed = ids[self.refs[ids] == 0][::-1]
        self._stack[self.free_blocks : self.free_blocks + len(freed)] = freed
        self.free_blocks += len(freed)
        return freed

    def check(self) -> None:
        """Assert that the stack holds exactly the blocks without a holder, each once."""
        stack = np.sort(self._stack[: self.free_blocks])
        unheld = np.flatnonzero(self.refs == 0)
        assert np.array_equal(stack, unheld), (
            f"{self.free_blocks} blocks on the free list, {len(unheld)} without a holder"
        )
        assert (self.refs >= 0).all(), "a block has a negative ref count"
