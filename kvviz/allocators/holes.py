"""Allocation of exact sizes from holes: what the four fits and TLSF have in common.

A region is cut from the low end of its hole. Freed slots merge with the holes beside them at
once, or (deferred) only when a request finds no place that would find one after merging.

    before   |aaaa|....|bb|........|      allocate(3) from the first hole
    after    |aaaa|ccc|.|bb|........|
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kvviz.allocators.allocator import Plan, check_policy, check_tiles
from kvviz.allocators.boundaries import Boundaries, Runs
from kvviz.allocators.compact import fewest_moved, full_slide
from kvviz.allocators.indices import Index
from kvviz.records import Region

# (capacity, order) -> an empty index
IndexMaker = Callable[[int, str], Index]


class HoleAllocator:
    """See `allocators.allocator.Allocator`. `make_index` decides which hole is taken."""

    can_slide = True

    def __init__(
        self,
        capacity: int,
        make_index: IndexMaker,
        *,
        coalesce: str = "immediate",
        order: str = "address",
    ) -> None:
        check_policy(coalesce, order)
        self.capacity = capacity
        self.free_slots = capacity
        self.allocations = self.remainders = 0
        self._make_index = make_index
        self._order = order
        self._index = make_index(capacity, order)
        self.largest_possible = self._index.reach(capacity)
        self._rows = Boundaries()
        # What the rows would merge to; only kept while merging is deferred.
        self._runs = Runs() if coalesce == "deferred" else None
        self._live: dict[int, int] = {}
        self._rover = 0
        self._fill()

    @property
    def largest(self) -> int:
        if self._runs is not None:
            return self._index.reach(self._runs.largest)
        return self._index.largest

    @property
    def hole_count(self) -> int:
        return len(self._rows.sizes)

    def granted(self, size: int) -> int:
        return size

    def hole_for(self, size: int) -> int:
        return self._index.hole_for(size)

    def fits(self, size: int) -> bool:
        return size <= self.largest

    def holes(self) -> list[Region]:
        return [Region(*row) for row in sorted(self._rows.sizes.items())]

    def hole_columns(self) -> np.ndarray:
        sizes = self._rows.sizes
        found = np.empty((2, len(sizes)), np.int64)
        found[0] = np.fromiter(sizes, np.int64, len(sizes))
        found[1] = np.fromiter(sizes.values(), np.int64, len(sizes))
        return found

    def live(self) -> list[Region]:
        return [Region(*row) for row in sorted(self._live.items())]

    def allocate(self, size: int) -> Region | None:
        assert size > 0, f"allocate({size}): a region has at least one slot"
        start = self._index.find(size, self._rover)
        if start < 0:
            if self._runs is None or not self.fits(size):
                return None
            self._merge()
            start = self._index.find(size, self._rover)
        self.allocations += 1
        self.remainders += self._cut(start, size) > size
        self._live[start] = size
        self._rover = start + size
        return Region(start, size)

    def extend(self, region: Region, extra: int) -> Region | None:
        """Grows into the hole right behind, or into several that touch one another."""
        assert self._live.get(region.start) == region.size, f"extend of a stranger: {region}"
        rows = self._rows.behind(region.end, extra)
        if not rows and extra > 0:
            return None
        left = extra
        for start, size in rows:
            self._cut(start, min(size, left), grows=True)
            left -= size
        self._live[region.start] = region.size + extra
        return Region(region.start, region.size + extra)

    def free(self, region: Region) -> None:
        start, size = region
        live = self._live.pop(start, None)
        assert live == size, f"free of {region}, but {live} slots are live there"
        self.free_slots += size
        if self._runs is not None:
            self._runs.give(start, size)
            self._add(start, size)
            return
        end = start + size
        absorbed = self._rows.touching(start, end)
        for low, hole in absorbed:
            self._rows.pop(low)
            start, end = min(start, low), max(end, low + hole)
        self._rows.add(start, end - start)
        self._index.join(absorbed, start, end - start)

    def relocate(self, targets: Mapping[int, int]) -> None:
        """Holes are found anew, merged; the lowest is then the one freed last."""
        self._live = {targets.get(s, s): n for s, n in self._live.items()}
        for start in list(self._rows.sizes):
            self._drop(start)
        self._fill()
        check_tiles(sorted([*self.live(), *self.holes()]), self.capacity)

    def repack(self) -> Plan:
        return full_slide(self.live())

    def opening(self, need: int, cost: Mapping[int, int] | None = None) -> Plan | None:
        if self.fits(need):
            return []
        if need > self.largest_possible:
            return None
        hole = self.hole_for(need)
        return fewest_moved(self.live(), self.holes(), self.capacity, hole, cost)

    def reconfigure(self, *, coalesce: str | None = None, order: str | None = None) -> None:
        now = "immediate" if self._runs is None else "deferred"
        coalesce, order = coalesce or now, order or self._order
        check_policy(coalesce, order)
        if order != self._order:
            self._order = order
            self._rebuild_index()
        if coalesce == now:
            return
        if coalesce == "immediate":
            self._merge()
            self._runs = None
            return
        self._runs = Runs()
        for start, size in self._rows.sizes.items():
            self._runs.give(start, size)

    def check(self) -> None:
        holes = self.holes()
        check_tiles(sorted([*self.live(), *holes]), self.capacity)
        held = sum(h.size for h in holes)
        assert held == self.free_slots, f"holes hold {held} slots, free says {self.free_slots}"
        self._index.check(holes)
        merged = Runs()
        for hole in holes:
            merged.give(*hole)
        if self._runs is None:
            assert len(merged.sizes) == len(holes), "two holes touch and were not merged"
        else:
            assert merged.sizes == self._runs.sizes, "the runs and the holes disagree"

    def _cut(self, start: int, size: int, grows: bool = False) -> int:
        """The low end of this hole is used now; returns the hole's size before."""
        hole = self._rows.cut(start, size)
        if grows:  # no search chose this hole: the rest goes back as any other hole
            self._index.drop(start, hole)
            if hole > size:
                self._index.add(start + size, hole - size)
        else:
            self._index.cut(start, hole, size)
        if self._runs is not None:
            self._runs.take(start, size)
        self.free_slots -= size
        return hole

    def _add(self, start: int, size: int) -> None:
        self._rows.add(start, size)
        self._index.add(start, size)

    def _drop(self, start: int) -> None:
        self._index.drop(start, self._rows.pop(start))

    def _merge(self) -> None:
        """Rows become runs. Last in, first out: a merged one counts as freed now, the lowest
        last; a row that stayed alone keeps its turn."""
        assert self._runs is not None
        for start, size in sorted(self._runs.sizes.items(), reverse=True):
            if self._rows.sizes.get(start) != size:
                for low, _ in self._rows.behind(start, size):
                    self._drop(low)
                self._add(start, size)

    def _fill(self) -> None:
        """One hole for each gap between the live regions, the lowest added last."""
        if self._runs is not None:
            self._runs = Runs()
        end = self.capacity
        for region in reversed(self.live()):
            self._fill_gap(region.end, end)
            end = region.start
        self._fill_gap(0, end)

    def _fill_gap(self, start: int, end: int) -> None:
        if end > start:
            self._add(start, end - start)
            if self._runs is not None:
                self._runs.give(start, end - start)

    def _rebuild_index(self) -> None:
        self._index = self._make_index(self.capacity, self._order)
        for start in sorted(self._rows.sizes, reverse=True):
            self._index.add(start, self._rows.sizes[start])
