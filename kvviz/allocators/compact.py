"""Compaction plans: which regions go where, and what that costs in slots copied.

Full slide, in address order:

    before   |..|aa|...|bbb|.|cc|          after   |aa|bbb|cc|......|

Fewest slots moved, for a hole of 5: bbb stays, aa goes to the hole behind it.

    before   |...|aa|.|bbb|..|cc|          after   |......|bbb|aa|cc|

A plan is a list of (region, new start) in an order in which the copies are safe: none of them
overwrites slots that are still to go. (A region may overlap its own new place.)
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping

from kvviz.allocators.allocator import Plan
from kvviz.records import Region

Cost = Callable[[Region], int]


def full_slide(live: Iterable[Region]) -> Plan:
    """All live regions to the low end: one hole is left.

    Every region moves down, lowest first, so a copy never overwrites one that is still to go.
    """
    at = 0
    plan = []
    for region in sorted(live):
        if region.start != at:
            plan.append((region, at))
        at += region.size
    return plan


def bounded_slide(
    live: Iterable[Region], budget: int, cost: Mapping[int, int] | None = None
) -> Plan:
    """The longest beginning of the full slide that copies at most `budget` slots.

    Empty when the first region to move is larger than the budget: with a budget below the
    largest region a slide in steps can come to a halt. cost: as in `fewest_moved`.
    """
    price = _price(cost)
    plan = []
    for region, start in full_slide(live):
        budget -= price(region)
        if budget < 0:
            break
        plan.append((region, start))
    return plan


def fewest_moved(
    live: Iterable[Region],
    holes: Iterable[Region],
    capacity: int,
    need: int,
    cost: Mapping[int, int] | None = None,
) -> Plan | None:
    """The moves that copy the fewest slots, of all found, and open one hole of `need` slots.

    Two ways are weighed: to clear a window of `need` slots into holes outside it, and to slide
    the regions between two holes down so that these, and all between, become one. Which regions
    go into which holes is bin packing, so it is decided by best fit, largest region first: the
    result is never dearer than a full slide, but a cheaper one may be missed.

    cost: {start of a region: slots copied when it moves}; by default its size.
    Returns None when fewer than `need` slots are free; no moves when a hole holds it already.
    """
    live, gaps = sorted(live), _merged(holes)
    if need > sum(gap.size for gap in gaps):
        return None
    if any(gap.size >= need for gap in gaps):
        return []
    price = _price(cost)
    slide = _cheapest_slide(live, gaps, need, price)
    limit = plan_price(slide, cost)
    windows = sorted(_windows(live, capacity, need, price))
    for total, start in windows:
        if total >= limit:
            break
        plan = _evacuation(live, gaps, Region(start, need))
        if plan is not None:
            return plan
    return slide


def final_places(plan: Plan) -> dict[int, int]:
    """{start before the plan: start after it}, regions that move twice included."""
    origin: dict[int, int] = {}
    for region, start in plan:
        origin[start] = origin.pop(region.start, region.start)
    return {first: last for last, first in origin.items() if first != last}


def plan_price(plan: Plan, cost: Mapping[int, int] | None = None) -> int:
    """Slots that a plan copies; cost as in `fewest_moved`, by the start before the plan."""
    price = _price(cost)
    origin: dict[int, int] = {}
    total = 0
    for region, start in plan:
        origin[start] = first = origin.pop(region.start, region.start)
        total += price(Region(first, region.size))
    return total


def _price(cost: Mapping[int, int] | None) -> Cost:
    return (lambda region: region.size) if cost is None else (lambda region: cost[region.start])


def _merged(holes: Iterable[Region]) -> list[Region]:
    """Holes that touch, as one."""
    found: list[Region] = []
    for hole in sorted(holes):
        if found and found[-1].end == hole.start:
            found[-1] = Region(found[-1].start, found[-1].size + hole.size)
        else:
            found.append(hole)
    return found


def _cheapest_slide(live: list[Region], gaps: list[Region], need: int, price: Cost) -> Plan:
    """Of all runs of neighbouring gaps that hold `need` together, the one with the cheapest
    regions in between; those slide down to the lowest of the gaps."""
    before = [0]  # price of all regions below the i-th
    for region in live:
        before.append(before[-1] + price(region))
    rank = [bisect_left(live, gap) for gap in gaps]  # regions below each gap
    best, chosen = -1, (0, 0)
    low, free = 0, 0
    for high, gap in enumerate(gaps):
        free += gap.size
        while free - gaps[low].size >= need:
            free -= gaps[low].size
            low += 1
        total = before[rank[high]] - before[rank[low]]
        if free >= need and (best < 0 or total < best):
            best, chosen = total, (low, high)
    low, high = chosen
    at = gaps[low].start
    plan = []
    for region in live[rank[low] : rank[high]]:
        plan.append((region, at))
        at += region.size
    return plan


def _windows(
    live: list[Region], capacity: int, need: int, price: Cost
) -> Iterable[tuple[int, int]]:
    """(price of the regions in it, start) for each window that begins or ends at an edge: a
    window between two of those holds the same regions as one of them, or more."""
    edges = {0, capacity - need}
    edges.update(region.end for region in live)
    edges.update(region.start - need for region in live)
    before = [0]
    for region in live:
        before.append(before[-1] + price(region))
    ends = [region.end for region in live]
    starts = [region.start for region in live]
    for start in edges:
        if 0 <= start <= capacity - need:
            first = bisect_left(ends, start + 1)
            last = bisect_left(starts, start + need)
            yield before[last] - before[first], start


def _evacuation(live: list[Region], gaps: list[Region], window: Region) -> Plan | None:
    """Each region that lies in the window into the smallest hole outside that takes it."""
    leaving = [r for r in live if r.start < window.end and r.end > window.start]
    rooms: list[tuple[int, int]] = []  # (size, start), smallest first
    for gap in gaps:
        for start, end in (
            (gap.start, min(gap.end, window.start)),
            (max(gap.start, window.end), gap.end),
        ):
            if end > start:
                rooms.append((end - start, start))
    if sum(r.size for r in leaving) > sum(size for size, _ in rooms):
        return None
    rooms.sort()
    plan = []
    for region in sorted(leaving, key=lambda r: (-r.size, r.start)):
        at = bisect_left(rooms, (region.size, -1))
        if at == len(rooms):
            return None
        size, start = rooms.pop(at)
        plan.append((region, start))
        if size > region.size:
            insort(rooms, (size - region.size, start + region.size))
    return plan
