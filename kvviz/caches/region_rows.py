"""Whose region lies where, by the line of the address table: what a contiguous layout knows of
those who run, in arrays, so that a step and a picture of the pool are a few calls however many run.
"""

from __future__ import annotations

import numpy as np

from kvviz.records import HOLE, Columns, Region

_NAMES = ("id", "start", "size", "room", "asked")


class RegionRows:
    """int64 [lines] each: `id`, `start`, `size`, `room`, the slots not written yet, and `asked`,
    what the request asked for before rounding. A line whose size is 0 is nobody's.

    The same as views ending in `_of`, for one line at a time: they give and take Python's integers.
    """

    def __init__(self, lines: int) -> None:
        self._wide = np.zeros((len(_NAMES), lines), np.int64)
        self._look()

    def __getstate__(self) -> np.ndarray:
        return self._wide  # the rest is views of it: a copy has views of its own

    def __setstate__(self, wide: np.ndarray) -> None:
        self._wide = wide
        self._look()

    def lengthen(self, lines: int) -> None:
        """Room for this many lines."""
        more = np.zeros((len(_NAMES), lines - self._wide.shape[1]), np.int64)
        self._wide = np.concatenate([self._wide, more], axis=1)
        self._look()

    def open(self, line: int, request_id: int, region: Region, asked: int) -> None:
        self._wide[:, line] = request_id, region.start, region.size, region.size, asked

    def close(self, line: int) -> None:
        self._wide[:, line] = 0

    def region(self, line: int) -> Region:
        return Region(self.start_of[line], self.size_of[line])

    def written(self, line: int) -> int:
        return self.size_of[line] - self.room_of[line]

    def move(self, line: int, region: Region) -> None:
        """It lies here now, with what is written."""
        self.room_of[line] += region.size - self.size_of[line]
        self.start_of[line], self.size_of[line] = region

    def lines(self) -> list[int]:
        """Lines that are somebody's, ascending."""
        return self._held().tolist()

    def regions(self) -> list[Region]:
        """Of all who have one, by line."""
        return [Region(*row) for row in self._wide[1:3, self._held()].T.tolist()]

    def owners(self) -> np.ndarray:
        """Whose the regions are, by address, int64 [requests]."""
        lines = self._held()
        return self.id[lines[self.start[lines].argsort()]]

    def write(self, line: int, count: int) -> None:
        """`count` more slots of the region hold a token."""
        self.room_of[line] -= count

    def write_each(self, lines: np.ndarray) -> bool:
        """One more slot of each of these regions, or False and nothing is changed: one is full."""
        room = self.room[lines]
        if np.count_nonzero(room) < len(room):  # a third of what `all` costs
            return False
        self.room[lines] = room - 1
        return True

    def rounded(self) -> int:
        """Slots held beyond what was asked for, and beyond what has been written since."""
        return int(np.minimum(self.size - self.asked, self.room).sum())

    def columns(self, holes: np.ndarray) -> Columns:
        """Rows that tile the pool, with these holes [2, n], (starts, sizes) in any order."""
        ids, starts, sizes, rooms, _ = self._wide.take(self._held(), axis=1)
        live = len(ids)
        rows = np.zeros((5, live + holes.shape[1]), np.int64)
        start, size, used, owner, refs = rows
        start[:live], start[live:] = starts, holes[0]
        size[:live], size[live:] = sizes, holes[1]
        np.subtract(sizes, rooms, out=used[:live])
        owner[:live], owner[live:] = ids, HOLE
        refs[:live] = 1
        return Columns(*rows.take(start.argsort(), axis=1))

    def _held(self) -> np.ndarray:
        return self.size.nonzero()[0]

    def _look(self) -> None:
        self.id, self.start, self.size, self.room, self.asked = self._wide
        self.id_of, self.start_of = self.id.data, self.start.data
        self.size_of, self.room_of = self.size.data, self.room.data
