"""Contiguous allocation over one address-ordered list of holes, coalesced at once.

First, best, worst and next fit differ in one choice over the same list. Ties go to the lowest
address. A region is cut from the low end of its hole.

    before   |aaaa|....|bb|........|      allocate(3), first fit
    after    |aaaa|ccc|.|bb|........|
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


CHOICES: dict[str, Choice] = {
    "first": first_fit,
    "best": best_fit,
    "worst": worst_fit,
    "next": next_fit,
}


class FitAllocator:
    """Regions from `capacity` slots. `choice` may be swapped while regions are live."""

    def __init__(self, capacity: int, fit: str = "first") -> None:
        self.capacity = capacity
        self.choice = CHOICES[fit]
        self.free_slots = capacity
        self._starts = [0] if capacity else []
        self._sizes = [capacity] if capacity else []
        self._live: dict[int, int] = {}
        self._rover_address = 0

    @property
    def largest(self) -> int:
        """Size of the largest hole, 0 when the pool is full."""
        return max(self._sizes, default=0)

    @property
    def hole_count(self) -> int:
        return len(self._starts)

    def holes(self) -> list[Region]:
        """Holes in address order."""
        return [Region(s, n) for s, n in zip(self._starts, self._sizes, strict=True)]

    def live(self) -> list[Region]:
        """Live regions in address order."""
        return [Region(s, self._live[s]) for s in sorted(self._live)]

    def allocate(self, size: int) -> Region | None:
        """A region of exactly `size` slots, or None when no hole is large enough."""
        assert size > 0, f"allocate({size}): a region has at least one slot"
        rover = bisect_left(self._starts, self._rover_address)
        index = self.choice(self._sizes, size, rover)
        if index < 0:
            return None
        start = self._starts[index]
        self._cut(index, size)
        self._live[start] = size
        self.free_slots -= size
        self._rover_address = start + size
        return Region(start, size)

    def extend(self, region: Region, extra: int) -> Region | None:
        """Grow in place into the hole right behind, or None when it is too small."""
        assert self._live.get(region.start) == region.size, f"extend of a stranger: {region}"
        index = bisect_left(self._starts, region.end)
        if (
            index == len(self._starts)
            or self._starts[index] != region.end
            or self._sizes[index] < extra
        ):
            return None
        self._cut(index, extra)
        self._live[region.start] = region.size + extra
        self.free_slots -= extra
        return Region(region.start, region.size + extra)

    def free(self, region: Region) -> None:
        """Give a region back; it merges with the holes at both sides at once."""
        size = self._live.pop(region.start, None)
        assert size == region.size, f"free of {region}, but {size} slots are live there"
        self.free_slots += region.size
        start, end = region
        end += start
        index = bisect_left(self._starts, start)
        if index < len(self._starts) and self._starts[index] == end:
            end += self._sizes[index]
            del self._starts[index], self._sizes[index]
        if index and self._starts[index - 1] + self._sizes[index - 1] == start:
            index -= 1
            start = self._starts[index]
            self._sizes[index] = end - start
        else:
            self._starts.insert(index, start)
            self._sizes.insert(index, end - start)

    def relocate(self, targets: dict[int, int]) -> None:
        """Live regions now start elsewhere (compaction): {old start: new start}."""
        self._live = {targets.get(s, s): n for s, n in self._live.items()}
        self._starts, self._sizes = [], []
        at = 0
        for start in sorted(self._live):
            if start > at:
                self._starts.append(at)
                self._sizes.append(start - at)
            at = start + self._live[start]
        if at < self.capacity:
            self._starts.append(at)
            self._sizes.append(self.capacity - at)
        self.check()

    def check(self) -> None:
        """Assert that live regions and holes tile the pool and that no two holes touch."""
        rows = sorted([*self.live(), *self.holes()])
        at = 0
        for start, size in rows:
            assert start == at and size > 0, f"expected a row at {at}, found {start}+{size}"
            at += size
        assert at == self.capacity, f"rows end at {at} of {self.capacity}"
        assert sum(self._sizes) == self.free_slots, (
            f"holes hold {sum(self._sizes)} slots, free says {self.free_slots}"
        )
        for index in range(len(self._starts) - 1):
            assert self._starts[index] + self._sizes[index] < self._starts[index + 1], (
                "two holes touch and were not merged"
            )

    def _cut(self, index: int, size: int) -> None:
        if self._sizes[index] == size:
            del self._starts[index], self._sizes[index]
        else:
            self._starts[index] += size
            self._sizes[index] -= size
