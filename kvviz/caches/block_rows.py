"""Rows of a pool of blocks as columns: a row a block, and one for the slots behind the last.

Starts and sizes never change, so every Columns has the same arrays. Whose a block is, is kept as
blocks come and go while each has one holder; with shared blocks it is read from the tables.
"""

from __future__ import annotations

import numpy as np

from kvviz.allocators.blocks import BlockPool
from kvviz.records import HOLE, RESERVED, Columns


class BlockRows:
    """`pool`: whose blocks these are, of `grain` slots each, in a memory of `capacity` slots."""

    def __init__(self, pool: BlockPool, grain: int, capacity: int) -> None:
        self._pool = pool
        self._grain = grain
        count = pool.count
        rest = capacity - count * grain
        rows = count + (rest > 0)
        self._start = _fixed(np.arange(rows, dtype=np.int64) * grain)
        size = np.full(rows, grain, np.int64)
        size[count:] = rest  # no block covers these slots, and nobody gets them
        self._size = _fixed(size)
        self._none = _fixed(np.zeros(rows, np.int64))
        self._nobody = np.full(rows, HOLE, np.int32)
        self._nobody[: pool.null] = self._nobody[count:] = RESERVED
        self._owner = self._nobody.copy()
        self._used = np.zeros(rows, np.int32)  # as if what is held were full

    def hold(self, ids: np.ndarray, owner: np.ndarray | int) -> None:
        """These blocks have this one holder now."""
        self._owner[ids] = owner
        self._used[ids] = self._grain

    def free(self, ids: np.ndarray) -> None:
        """Nobody holds these now."""
        self._owner[ids] = HOLE
        self._used[ids] = 0

    def columns(
        self,
        tails: tuple[np.ndarray, np.ndarray],
        unwritten: np.ndarray,
        holders: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> Columns:
        """tails: (ids, slots written) of the blocks that are written in part. unwritten: ids of
        those that are held and hold nothing yet. holders: (ids, owners) of all that are held,
        the oldest holder of a block last; None while `hold` was told of each."""
        owner, used, refs = _columns(len(self._owner))
        if holders is None:
            owner[:], used[:] = self._owner, self._used
        else:
            owner[:] = self._nobody
            ids, owners = holders
            owner[ids] = owners
            np.multiply(owner >= 0, self._grain, out=used, dtype=np.int32)
        ids, written = tails
        used[ids] = written
        used[unwritten] = 0
        count = self._pool.count
        refs[:count], refs[count:] = self._pool.refs, 1
        cached = self._none
        if self._pool.cached_blocks:
            cached = np.zeros(len(owner), np.int64)
            np.multiply(self._pool.cached, self._grain, out=cached[:count])
        return Columns(self._start, self._size, used, owner, refs, cached)


def _columns(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three of int32 [rows] in one piece of memory. The C library gives large pieces back
    when more than twice the largest is free, and new ones cost a page fault for every 4 KiB:
    several times what is written to them. One piece that is as large each time stays."""
    memory = np.empty(3 * rows, np.int32)
    return memory[:rows], memory[rows : 2 * rows], memory[2 * rows :]


def _fixed(column: np.ndarray) -> np.ndarray:
    """Read-only: many Columns have it."""
    column.flags.writeable = False
    return column
