"""Blocks inside pages: free blocks are not memory that can go back. Integers only.

Memory returns to the system by the page, and a page returns only when every block in it is free.
One block that is kept in each page keeps them all:

    by age   |# . . .|# . . .|# . . .|# . . .|     12 of 16 blocks free, no page back
    by page  |# # # #|. . . .|. . . .|. . . .|     12 of 16 blocks free, 3 pages back

So who evicts to give memory back must choose its victims by page (kvcached, issue 359).
"""

from __future__ import annotations

import numpy as np


class PageBook:
    """`pages` pages of `per_page` blocks; block i lies in page i // per_page.

    `last_use[i]` is the count of calls of `take` and `use` at the block's last one; -1 is free.
    """

    def __init__(self, pages: int, per_page: int) -> None:
        self.pages, self.per_page = pages, per_page
        self.last_use = np.full(pages * per_page, -1, np.int64)
        self._calls = 0

    @property
    def free_blocks(self) -> int:
        return int(np.count_nonzero(self.last_use < 0))

    @property
    def live(self) -> np.ndarray:
        """Live blocks in each page, int64 [pages]."""
        return np.count_nonzero(self.last_use.reshape(self.pages, -1) >= 0, axis=1)

    @property
    def returnable(self) -> int:
        """Pages that hold no live block, and so can go back."""
        return int(np.count_nonzero(self.live == 0))

    def take(self, count: int) -> np.ndarray | None:
        """The lowest free blocks, ids [count]; None when fewer are free."""
        ids = np.flatnonzero(self.last_use < 0)[:count]
        if len(ids) < count:
            return None
        self._stamp(ids)
        return ids

    def use(self, ids: np.ndarray) -> None:
        """These live blocks are the last ones used now."""
        assert (self.last_use[ids] >= 0).all(), "use of a free block"
        self._stamp(ids)

    def drop(self, ids: np.ndarray) -> int:
        """Free these blocks; returns the pages that can go back now and could not before."""
        assert len(np.unique(ids)) == len(ids), "a block is dropped twice"
        assert (self.last_use[ids] >= 0).all(), "drop of a free block"
        before = self.returnable
        self.last_use[ids] = -1
        return self.returnable - before

    def oldest(self, count: int) -> np.ndarray:
        """Victims by age: the live blocks [count at most] that were used least recently."""
        live = np.flatnonzero(self.last_use >= 0)
        return live[np.argsort(self.last_use[live], kind="stable")][:count]

    def emptiest(self, count: int) -> np.ndarray:
        """Victims by page: all of the pages with the fewest live blocks, then of the next ones.

        Among equals the page whose newest block is oldest goes first. What is left of `count`
        for a last page that it can't empty is taken there, oldest first.
        """
        newest = self.last_use.reshape(self.pages, -1).max(axis=1)
        rank = np.empty(self.pages, np.int64)
        rank[np.lexsort((newest, self.live))] = np.arange(self.pages)
        live = np.flatnonzero(self.last_use >= 0)
        order = np.lexsort((self.last_use[live], rank[live // self.per_page]))
        return live[order][:count]

    def _stamp(self, ids: np.ndarray) -> None:
        self.last_use[ids] = self._calls
        self._calls += 1
