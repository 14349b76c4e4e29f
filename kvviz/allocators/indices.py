"""Which hole a request gets: an index over the holes for each rule of choice.

An index is told of every hole that appears, goes or loses its low end, and answers `find`. What
a search costs, with H holes in a pool of C slots:

    AddressIndex   first and next fit by address      O(log C)
    RecentIndex    first and next fit, last in first out: amortised O(log H)
    SizeIndex      best and worst fit                 O(log H) and a memmove of 8 bytes a hole,
                                                      below a microsecond at 10,000 holes
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, insort

import numpy as np

from kvviz.allocators.maxtree import MaxTree
from kvviz.records import Region


class Index(ABC):
    """Holes as (start, size). `find` changes nothing."""

    @abstractmethod
    def add(self, start: int, size: int) -> None:
        """A hole that was not there."""

    @abstractmethod
    def drop(self, start: int, size: int) -> None:
        """This hole is gone."""

    def join(self, holes: list[tuple[int, int]], start: int, size: int) -> None:
        """Freed slots and these neighbours are one hole now; it counts as freed now."""
        for hole in holes:
            self.drop(*hole)
        self.add(start, size)

    def cut(self, start: int, size: int, taken: int) -> None:
        """An allocation took the low `taken` slots of this hole; the rest keeps its turn."""
        self.drop(start, size)
        if size > taken:
            self.add(start + taken, size - taken)

    @abstractmethod
    def find(self, need: int, rover: int) -> int:
        """Start of the hole for `need` slots, or -1. rover: the end of the last allocation."""

    def reach(self, size: int) -> int:
        """The largest request that a hole of `size` slots is found for."""
        return size

    @property
    @abstractmethod
    def largest(self) -> int:
        """The largest request that finds a hole; 0 when none does."""

    def hole_for(self, need: int) -> int:
        """The smallest hole that is found for every request of up to `need` slots."""
        return need

    @abstractmethod
    def check(self, holes: list[Region]) -> None:
        """Assert that these, in address order, are the holes that it knows."""


class AddressIndex(Index):
    """The lowest hole that is large enough; with `rove`, the lowest from the rover on."""

    def __init__(self, capacity: int, rove: bool) -> None:
        self._tree = MaxTree(capacity)
        self._rove = rove

    def add(self, start: int, size: int) -> None:
        self._tree.put(start, size)

    def drop(self, start: int, size: int) -> None:
        self._tree.put(start, 0)

    def join(self, holes: list[tuple[int, int]], start: int, size: int) -> None:
        # First the new one: it covers the others' maxima, so that those end a few levels up.
        self._tree.put(start, size)
        for low, _ in holes:
            if low != start:
                self._tree.put(low, 0)

    def cut(self, start: int, size: int, taken: int) -> None:
        if size > taken:
            self._tree.put(start + taken, size - taken)
        self._tree.put(start, 0)

    def find(self, need: int, rover: int) -> int:
        if self._rove:
            found = self._tree.first(need, rover)
            if found >= 0:
                return found
        return self._tree.first(need)

    @property
    def largest(self) -> int:
        return self._tree.top

    def check(self, holes: list[Region]) -> None:
        self._tree.check()
        sizes = self._tree.sizes()
        starts = np.flatnonzero(sizes)
        found = list(zip(starts.tolist(), sizes[starts].tolist(), strict=True))
        assert found == holes, "the tree and the holes disagree"


class RecentIndex(Index):
    """The hole freed last that is large enough; with `rove`, on down the list from the place of
    the last allocation.

    Places are counted down, so the newest hole has the lowest one. When they run out the holes
    are renumbered in a tree at least four times their number.
    """

    def __init__(self, rove: bool) -> None:
        self._rove = rove
        self._place: dict[int, int] = {}  # start of a hole -> its place
        self._start: dict[int, int] = {}  # the other way round
        self._tree = MaxTree(64)
        self._next = 63
        self._rover = 0

    def add(self, start: int, size: int) -> None:
        if self._next < 0:
            self._renumber()
        self._place[start] = self._next
        self._start[self._next] = start
        self._tree.put(self._next, size)
        self._next -= 1

    def drop(self, start: int, size: int) -> None:
        place = self._place.pop(start)
        del self._start[place]
        self._tree.put(place, 0)

    def cut(self, start: int, size: int, taken: int) -> None:
        self._rover = place = self._place[start]
        if size == taken:
            self.drop(start, size)
            return
        del self._place[start]
        self._place[start + taken] = place
        self._start[place] = start + taken
        self._tree.put(place, size - taken)

    def find(self, need: int, rover: int) -> int:
        place = self._tree.first(need, self._rover) if self._rove else -1
        if place < 0:
            place = self._tree.first(need)
        return self._start[place] if place >= 0 else -1

    @property
    def largest(self) -> int:
        return self._tree.top

    def check(self, holes: list[Region]) -> None:
        self._tree.check()
        sizes = self._tree.sizes()
        assert np.flatnonzero(sizes).tolist() == sorted(self._start), "places and sizes disagree"
        found = sorted((start, int(sizes[place])) for start, place in self._place.items())
        assert found == holes, "the tree and the holes disagree"

    def _renumber(self) -> None:
        places = sorted(self._start)
        sizes = self._tree.sizes()
        width = max(64, 4 << len(places).bit_length())
        shift = width - len(places)
        self._rover = shift + bisect_left(places, self._rover)
        starts = [self._start[place] for place in places]
        self._tree = MaxTree(width)
        for place, old in enumerate(places, shift):
            self._tree.put(place, int(sizes[old]))
        self._start = dict(enumerate(starts, shift))
        self._place = {start: place for place, start in self._start.items()}
        self._next = shift - 1


class SizeIndex(Index):
    """The smallest hole that is large enough, or with `worst` the largest hole of all. Of equal
    holes the lowest."""

    # A hole is one integer, size then start: such a list is searched and shifted at C speed.
    BITS = 40

    def __init__(self, worst: bool) -> None:
        self._worst = worst
        self._keys: list[int] = []

    def add(self, start: int, size: int) -> None:
        insort(self._keys, size << self.BITS | start)

    def drop(self, start: int, size: int) -> None:
        del self._keys[bisect_left(self._keys, size << self.BITS | start)]

    def find(self, need: int, rover: int) -> int:
        largest = self.largest
        if need > largest:
            return -1
        at = bisect_left(self._keys, (largest if self._worst else need) << self.BITS)
        return self._keys[at] & ((1 << self.BITS) - 1)

    @property
    def largest(self) -> int:
        return self._keys[-1] >> self.BITS if self._keys else 0

    def check(self, holes: list[Region]) -> None:
        expected = sorted(size << self.BITS | start for start, size in holes)
        assert self._keys == expected, "the sizes and the holes disagree"
