"""Two-level segregated fit (Masmano, Ripoll, Crespo and Real, 2004): a good fit in constant time.

Holes hang in lists by size class: the first level is the power of two, the second cuts it into
32 equal parts. Two levels of bitmaps say which lists are in use, so a search is a few operations
on words, whatever the number of holes. Below 64 slots each size has a class of its own.

    sizes   ... 62  63 | 64-65  66-67 ... 126-127 | 128-131  132-135 ... 252-255 | 256-263 ...

The price: a request is rounded up to the next class boundary before the search, for any hole in
that list must do. So 130 slots are not found in a hole of 131 (good fit, not best fit).
"""

from __future__ import annotations

from kvviz.allocators.freelists import FREE_LISTS, FreeList
from kvviz.allocators.holes import HoleAllocator
from kvviz.allocators.indices import Index
from kvviz.records import Region

SECOND_BITS = 5
SECOND = 1 << SECOND_BITS


def size_class(size: int) -> int:
    """First level * SECOND + second level; it grows with the size."""
    if size < SECOND:
        return size
    shift = size.bit_length() - 1 - SECOND_BITS
    return (shift << SECOND_BITS) + (size >> shift)


def class_floor(number: int) -> int:
    """The smallest size in a class."""
    if number < SECOND:
        return number
    shift = (number >> SECOND_BITS) - 1
    return (SECOND + number % SECOND) << shift


def rounded_up(size: int) -> int:
    """The smallest class boundary that is at least `size`."""
    if size < SECOND:
        return size
    step = 1 << (size.bit_length() - 1 - SECOND_BITS)
    return -(-size // step) * step


class TlsfIndex(Index):
    """In the order of freeing every step is O(1); by address a
    list is kept sorted."""

    def __init__(self, order: str) -> None:
        self._new_list = FREE_LISTS[order]
        self._lists: dict[int, FreeList] = {}
        self._first = 0  # bit f: some second-level list of f is in use
        self._second: dict[int, int] = {}

    def add(self, start: int, size: int) -> None:
        number = size_class(size)
        holes = self._lists.get(number)
        if holes is None:
            holes = self._lists[number] = self._new_list()
        if not holes:
            first, second = divmod(number, SECOND)
            self._first |= 1 << first
            self._second[first] = self._second.get(first, 0) | 1 << second
        holes.add(start)

    def drop(self, start: int, size: int) -> None:
        number = size_class(size)
        holes = self._lists[number]
        holes.remove(start)
        if not holes:
            first, second = divmod(number, SECOND)
            self._second[first] &= ~(1 << second)
            if not self._second[first]:
                self._first &= ~(1 << first)

    def find(self, need: int, rover: int) -> int:
        first, second = divmod(size_class(rounded_up(need)), SECOND)
        lists = self._second.get(first, 0) >> second << second
        if not lists:
            higher = self._first >> (first + 1) << (first + 1)
            if not higher:
                return -1
            first = _lowest_bit(higher)
            lists = self._second[first]
        return self._lists[first * SECOND + _lowest_bit(lists)].top()

    def reach(self, size: int) -> int:
        return class_floor(size_class(size))

    @property
    def largest(self) -> int:
        if not self._first:
            return 0
        first = self._first.bit_length() - 1
        return class_floor(first * SECOND + self._second[first].bit_length() - 1)

    def hole_for(self, need: int) -> int:
        return rounded_up(need)

    def check(self, holes: list[Region]) -> None:
        expected: dict[int, set[int]] = {}
        for start, size in holes:
            expected.setdefault(size_class(size), set()).add(start)
        found = {number: set(starts) for number, starts in self._lists.items() if starts}
        assert found == expected, "the lists and the holes disagree"
        marked = {
            first * SECOND + second
            for first, bits in self._second.items()
            for second in range(SECOND)
            if bits >> second & 1
        }
        assert marked == set(expected), "the second level's bitmaps are stale"
        used = {first for first in range(self._first.bit_length()) if self._first >> first & 1}
        assert used == {number // SECOND for number in expected}, "the first level is stale"


def _lowest_bit(word: int) -> int:
    return (word & -word).bit_length() - 1


class TlsfAllocator(HoleAllocator):
    """Regions of exactly the size asked for; `largest` is what the search finds, which may be
    less than the largest hole."""

    def __init__(
        self, capacity: int, *, coalesce: str = "immediate", order: str = "address"
    ) -> None:
        super().__init__(
            capacity, lambda _capacity, order: TlsfIndex(order), coalesce=coalesce, order=order
        )
