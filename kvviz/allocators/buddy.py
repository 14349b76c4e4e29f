"""Binary buddy allocation (Knowlton 1965; Knuth, TAOCP 1, 2.5).

Every region is a power of two of units and lies at a multiple of its own size. Splitting and
merging are quick; the price is the rounding (`granted(size) - size`) and free blocks that touch
without being buddies, which never merge.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kvviz.allocators.allocator import Plan, check_policy, check_tiles
from kvviz.allocators.buddies import Block, FreeBlocks, cheapest_window, free_around, pair_up, trees
from kvviz.allocators.compact import plan_price
from kvviz.records import Region


class BuddyAllocator:
    """See `allocators.allocator.Allocator`. `unit`: the smallest block.

    Slots behind the last whole unit are free, and nobody gets them.
    """

    can_slide = False  # a region's start must stay a multiple of its size

    def __init__(
        self,
        capacity: int,
        *,
        coalesce: str = "immediate",
        order: str = "address",
        unit: int = 1,
    ) -> None:
        check_policy(coalesce, order)
        assert unit > 0, f"unit {unit}: a block has at least one slot"
        self.capacity = capacity
        self.unit = unit
        self.free_slots = capacity
        self.allocations = self.remainders = 0
        self._units = capacity // unit
        self.largest_possible = unit << self._units.bit_length() - 1 if self._units else 0
        self._order = order
        self._rows = FreeBlocks(self._units, order)
        self._live: dict[int, int] = {}  # {start: order}, in units
        # What the rows would merge to: the same object while merging is immediate.
        self._merged = self._rows
        self._rows.take_over(set(trees(self._units)))
        self.reconfigure(coalesce=coalesce)

    @property
    def largest(self) -> int:
        return self.unit << self._merged.top if self._merged.top >= 0 else 0

    @property
    def hole_count(self) -> int:
        return len(self.holes())

    def granted(self, size: int) -> int:
        return self.unit << self._order_of(size)

    def hole_for(self, size: int) -> int:
        return self.granted(size)

    def fits(self, size: int) -> bool:
        return size <= self.largest

    def holes(self) -> list[Region]:
        found = [self._region(*block) for block in sorted(self._rows.blocks())]
        rest = self._units * self.unit
        return found + [Region(rest, self.capacity - rest)] * (rest < self.capacity)

    def hole_columns(self) -> np.ndarray:
        return np.array(self.holes(), np.int64).reshape(-1, 2).T

    def live(self) -> list[Region]:
        return [self._region(*block) for block in sorted(self._live.items())]

    def allocate(self, size: int) -> Region | None:
        assert size > 0, f"allocate({size}): a region has at least one slot"
        order = self._order_of(size)
        found = self._rows.find(order)
        if found is None:
            if not self.fits(size):
                return None
            self._rows.take_over(self._merged.blocks())
            found = self._rows.find(order)
            assert found is not None  # `fits` said so
        start = found[0]
        self.allocations += 1
        self.remainders += self._rows.carve(start, order) > order
        if self._deferred:
            self._merged.carve(start, order)
        self._live[start] = order
        self.free_slots -= self.unit << order
        return self._region(start, order)

    def extend(self, region: Region, extra: int) -> Region | None:
        """The block doubles into its free buddy behind, as often as it takes; what it has got by
        rounding is part of `region` already."""
        start, order = self._known(region, "extend of a stranger")
        wanted = self._order_of(region.size + extra)
        steps = [(start | 1 << k, k) for k in range(order, wanted)]
        # (A right buddy finds itself there, which is not free.)
        if not all(self._merged.has(buddy, k) for buddy, k in steps):
            return None
        for buddy, k in steps:
            self._rows.clear(buddy, k)
            if self._deferred:
                self._merged.remove(buddy, k)
            self.free_slots -= self.unit << k
        self._live[start] = wanted
        return self._region(start, wanted)

    def free(self, region: Region) -> None:
        start, order = self._known(region, "free of a stranger")
        del self._live[start]
        self.free_slots += region.size
        self._merged.merge(start, order)
        if self._deferred:
            self._rows.add(start, order)

    def relocate(self, targets: Mapping[int, int]) -> None:
        """Free blocks are found anew, merged; every new start must suit its region's size."""
        live: dict[int, int] = {}
        for start, order in self._live.items():
            target, odd = divmod(targets.get(start * self.unit, start * self.unit), self.unit)
            assert not odd and target % (1 << order) == 0, (
                f"a block of {self.unit << order} slots can't start at {target * self.unit + odd}"
            )
            live[target] = order
        free = free_around(self._units, live.items())
        self._live = live
        self._rows.take_over(free.blocks())
        if self._deferred:
            self._merged.take_over(free.blocks())
        check_tiles(sorted([*self.live(), *self.holes()]), self.capacity)

    def repack(self) -> Plan:
        return self._plan(pair_up(self._units, self._live, self._units.bit_length()))

    def opening(self, need: int, cost: Mapping[int, int] | None = None) -> Plan | None:
        if self.fits(need):
            return []
        order = self._order_of(need)
        free = self._units - sum(1 << k for k in self._live.values())
        if need > self.largest_possible or 1 << order > free:
            return None
        prices = {
            start: self.unit << k if cost is None else cost[start * self.unit]
            for start, k in self._live.items()
        }
        cleared = cheapest_window(self._units, self._live, order, prices)
        paired = pair_up(self._units, self._live, order)
        plans = [self._plan(moves) for moves in (cleared, paired) if moves is not None]
        return min(plans, key=lambda plan: plan_price(plan, cost))

    def reconfigure(self, *, coalesce: str | None = None, order: str | None = None) -> None:
        now = "deferred" if self._deferred else "immediate"
        coalesce, order = coalesce or now, order or self._order
        check_policy(coalesce, order)
        merged, rows = self._merged.blocks(), self._rows.blocks()
        if order != self._order:
            self._order = order
            self._rows = FreeBlocks(self._units, order)
            self._rows.take_over(rows)
            if now == "immediate":
                self._merged = self._rows
        if coalesce == now:
            return
        if coalesce == "deferred":
            self._merged = FreeBlocks(self._units)
            self._merged.take_over(merged)
        else:
            self._rows.take_over(merged)
            self._merged = self._rows

    def check(self) -> None:
        holes, live = self.holes(), self.live()
        check_tiles(sorted([*live, *holes]), self.capacity)
        held = sum(h.size for h in holes)
        assert held == self.free_slots, f"holes hold {held} slots, free says {self.free_slots}"
        assert all(start % (1 << k) == 0 for start, k in self._live.items()), "a block lies askew"
        merged = free_around(self._units, self._live.items())
        assert merged.blocks() == self._merged.blocks(), "two free buddies were not merged"

    @property
    def _deferred(self) -> bool:
        return self._merged is not self._rows

    def _order_of(self, size: int) -> int:
        return (-(-size // self.unit) - 1).bit_length()

    def _region(self, start: int, order: int) -> Region:
        return Region(start * self.unit, self.unit << order)

    def _known(self, region: Region, fault: str) -> Block:
        start, odd = divmod(region.start, self.unit)
        order = self._live.get(start, -1)
        assert not odd and order >= 0 and self.unit << order == region.size, f"{fault}: {region}"
        return start, order

    def _plan(self, moves: list[tuple[int, int]]) -> Plan:
        """Moves in units as a plan in slots."""
        orders = dict(self._live)
        plan = []
        for start, target in moves:
            orders[target] = orders.pop(start)
            plan.append((self._region(start, orders[target]), target * self.unit))
        return plan
