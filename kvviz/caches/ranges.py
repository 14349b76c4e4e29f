"""Ranges of addresses and the physical frames mapped under them, page by page. Integers only.

    line 0   |frame 9 |frame 2 |frame 4 |        |     3 mapped, 2 held, 1 kept
    line 1   |        |        |        |        |

A range's mapped pages are always its first ones, and the held ones are the first of those. What
must happen to the memory is written into `journal`, in virtual slots.
"""

from __future__ import annotations

import heapq

import numpy as np

from kvviz.allocators.blocks import BlockPool
from kvviz.caches.layout import Journal
from kvviz.records import HOLE, Freed, Mapped, Unmapped


class Ranges:
    """`lines` ranges of `width` pages of `page_slots` slots, over `frames` physical pages.

    frames int32 [lines, width], HOLE where nothing is mapped; mapped, held int64 [lines]: pages.
    """

    def __init__(self, lines: int, width: int, page_slots: int, frames: int) -> None:
        self.page_slots = page_slots
        self.slots = width * page_slots
        self.pool = BlockPool(frames)
        self.frames = np.full((lines, width), HOLE, np.int32)
        self.mapped = np.zeros(lines, np.int64)
        self.held = np.zeros(lines, np.int64)
        self.journal: Journal = []
        self._unused = list(range(lines))
        self._kept: dict[int, None] = {}  # lines with pages that nobody holds, oldest first

    @property
    def kept(self) -> int:
        """Pages that are mapped and that nobody holds."""
        return sum(int(self.mapped[line] - self.held[line]) for line in self._kept)

    @property
    def free_pages(self) -> int:
        """Frames that are free, or can be taken away from a kept page."""
        return self.pool.free_blocks + self.kept

    def start(self, line: int) -> int:
        """First virtual slot of a range."""
        return line * self.slots

    def open(self) -> int:
        """The lowest range that nobody has."""
        assert self._unused, f"all {len(self.mapped)} ranges are in use"
        return heapq.heappop(self._unused)

    def hold(self, line: int, count: int) -> None:
        """Hold `count` more pages; those that the range kept come first."""
        fresh = count - min(count, int(self.mapped[line] - self.held[line]))
        self.held[line] += count - fresh
        self._forget_if_none(line)
        if fresh:
            self.reclaim(fresh - self.pool.free_blocks)
            self._map(line, fresh)
            self.held[line] += fresh

    def close(self, line: int, *, keep: bool) -> None:
        """Nobody has this range any more; its pages stay mapped (`keep`) or go back."""
        heapq.heappush(self._unused, line)
        held = int(self.held[line])
        if not held:
            return
        self.held[line] = 0
        self._kept.pop(line, None)
        self._kept[line] = None
        if keep:
            self.journal.append(Freed(self.start(line), held * self.page_slots))
        else:
            self._unmap(line, int(self.mapped[line]))

    def reclaim(self, count: int) -> None:
        """Unmap this many kept pages: from the range that was left first, its last page first."""
        while count > 0:
            line = next(iter(self._kept))
            taken = min(count, int(self.mapped[line] - self.held[line]))
            self._unmap(line, taken)
            count -= taken

    def check(self) -> None:
        self.pool.check()
        inside = np.arange(self.frames.shape[1]) < self.mapped[:, None]
        assert ((self.frames != HOLE) == inside).all(), "a range has a gap between its pages"
        frames = self.frames[inside]
        assert len(np.unique(frames)) == len(frames), "a frame lies under two pages"
        taken = self.pool.count - self.pool.free_blocks
        assert len(frames) == taken, f"{len(frames)} pages are mapped, {taken} frames are taken"
        assert (self.held <= self.mapped).all(), "a page is held that is not mapped"
        kept = np.flatnonzero(self.mapped > self.held).tolist()
        assert sorted(self._kept) == kept, f"kept by {sorted(self._kept)}, and by the pages {kept}"
        assert not self.held[self._unused].any(), "a range that nobody has holds pages"

    def _map(self, line: int, count: int) -> None:
        ids = self.pool.take(count)
        assert ids is not None, f"{count} free frames were promised"
        at = int(self.mapped[line])
        self.frames[line, at : at + count] = ids
        self.mapped[line] += count
        self.journal.append(Mapped(*self._slots(line, at, count)))

    def _unmap(self, line: int, count: int) -> None:
        at = int(self.mapped[line]) - count
        self.pool.drop(self.frames[line, at : at + count])
        self.frames[line, at : at + count] = HOLE
        self.mapped[line] = at
        self._forget_if_none(line)
        self.journal.append(Unmapped(*self._slots(line, at, count)))

    def _slots(self, line: int, page: int, count: int) -> tuple[int, int]:
        """(start, size) of these pages in virtual slots."""
        return self.start(line) + page * self.page_slots, count * self.page_slots

    def _forget_if_none(self, line: int) -> None:
        if self.mapped[line] == self.held[line]:
            self._kept.pop(line, None)
