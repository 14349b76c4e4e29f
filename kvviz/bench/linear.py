"""First, best, worst and next fit by looking at every hole: the yardstick of the searched ones.

Slow and plain on purpose. The tests compare each choice with it, the benchmark each time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from kvviz.records import Region

# (sizes in address order, slots needed, index to start from) -> index of the hole, or -1
Choice = Callable[[Sequence[int], int, int], int]


def first_fit(sizes: Sequence[int], need: int, _rover: int) -> int:
    """The lowest hole that is large enough."""
    for index, size in enumerate(sizes):
        if size >= need:
            return index
    return -1


def best_fit(sizes: Sequence[int], need: int, _rover: int) -> int:
    """The smallest hole that is large enough."""
    best, best_size = -1, 0
    for index, size in enumerate(sizes):
        if size >= need and (best < 0 or size < best_size):
            best, best_size = index, size
    return best


def worst_fit(sizes: Sequence[int], need: int, _rover: int) -> int:
    """The largest hole."""
    if not sizes:
        return -1
    size = max(sizes)
    return sizes.index(size) if size >= need else -1


def next_fit(sizes: Sequence[int], need: int, rover: int) -> int:
    """The first hole that is large enough, searching on from the last allocation."""
    count = len(sizes)
    for offset in range(count):
        index = (rover + offset) % count
        if sizes[index] >= need:
            return index
    return -1


LINEAR: dict[str, Choice] = {
    "first": first_fit,
    "best": best_fit,
    "worst": worst_fit,
    "next": next_fit,
}


class LinearAllocator:
    """Two address-ordered lists, starts and sizes of the holes; merged at once."""

    def __init__(self, capacity: int, fit: str) -> None:
        self.choice = LINEAR[fit]
        self._starts = [0]
        self._sizes = [capacity]
        self._rover = 0

    def holes(self) -> list[Region]:
        return [Region(s, n) for s, n in zip(self._starts, self._sizes, strict=True)]

    def allocate(self, size: int) -> Region | None:
        index = self.choice(self._sizes, size, bisect_left(self._starts, self._rover))
        if index < 0:
            return None
        start = self._starts[index]
        self._cut(index, size)
        self._rover = start + size
        return Region(start, size)

    def extend(self, region: Region, extra: int) -> Region | None:
        index = bisect_left(self._starts, region.end)
        behind = index < len(self._starts) and self._starts[index] == region.end
        if not behind or self._sizes[index] < extra:
            return None
        self._cut(index, extra)
        return Region(region.start, region.size + extra)

    def free(self, region: Region) -> None:
        start, end = region.start, region.end
        index = bisect_left(self._starts, start)
        if index < len(self._starts) and self._starts[index] == end:
            end += self._sizes[index]
            del self._starts[index], self._sizes[index]
        if index and self._starts[index - 1] + self._sizes[index - 1] == start:
            self._sizes[index - 1] = end - self._starts[index - 1]
        else:
            self._starts.insert(index, start)
            self._sizes.insert(index, end - start)

    def _cut(self, index: int, size: int) -> None:
        if self._sizes[index] == size:
            del self._starts[index], self._sizes[index]
        else:
            self._starts[index] += size
            self._sizes[index] -= size
