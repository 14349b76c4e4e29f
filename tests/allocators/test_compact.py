"""Compaction plans by hand, and what every plan must keep to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.allocators.compact import (
    bounded_slide,
    fewest_moved,
    final_places,
    full_slide,
    plan_price,
)
from kvviz.allocators.kinds import ALLOCATORS
from kvviz.records import Region
from tests.strategies import regions


def holes_between(live: list[Region], capacity: int) -> list[Region]:
    found, at = [], 0
    for region in [*sorted(live), Region(capacity, 0)]:
        if region.start > at:
            found.append(Region(at, region.start - at))
        at = region.end
    return found


def plan_for(live: list[Region], capacity: int, need: int, cost: dict[int, int] | None = None):
    return fewest_moved(live, holes_between(live, capacity), capacity, need, cost)


F0 = [Region(start, 1024) for start in (1024, 3072, 5120, 7168)]


def test_baseline_moves_one_region() -> None:
    """b goes into a's hole: 1024 slots instead of the slide's 4096, and 2048 fit at 1024."""
    assert plan_for(F0, 8192, 2048) == [(Region(1024, 1024), 0)]
    assert plan_price(full_slide(F0)) == 4096


def test_moves_over_a_wall() -> None:
    """|...|aa|.|bbb|..|cc|, 5 wanted: aa jumps over bbb, which a slide would have to move too."""
    live = [Region(3, 2), Region(6, 3), Region(11, 2)]
    assert plan_for(live, 13, 5) == [(Region(3, 2), 9)]


def test_slides_where_no_hole_takes_it() -> None:
    """|..|aaaa|..|bbb|, 4 wanted: neither fits in a hole, but aaaa slides down by two."""
    assert plan_for([Region(2, 4), Region(8, 3)], 11, 4) == [(Region(2, 4), 0)]


def test_largest_leave_first() -> None:
    """|aa|b|...|cc|..|d|.|: aa and b leave a window of 6 for rooms of 2 and 1."""
    live = [Region(0, 2), Region(2, 1), Region(6, 9), Region(17, 1)]
    assert plan_for(live, 19, 6) == [(Region(0, 2), 15), (Region(2, 1), 18)]


def test_impossible_and_needless() -> None:
    """More than is free can't be opened; what a hole holds already needs no move, though that
    hole be in two unmerged rows."""
    assert plan_for(F0, 8192, 4097) is None
    assert plan_for(F0, 8192, 1024) == []
    assert fewest_moved([Region(0, 2)], [Region(2, 3), Region(5, 3)], 8, 6) == []


@pytest.mark.parametrize("name", ALLOCATORS)
def test_an_allocator_opens_no_more_than_its_pool(name: str) -> None:
    """Everything would be moved for a request that can never fit."""
    allocator = ALLOCATORS[name](64)
    for _ in range(8):
        allocator.allocate(8)
    for start in range(0, 64, 16):
        allocator.free(Region(start, 8))
    assert allocator.opening(65) is None
    assert allocator.opening(8) == []
    assert allocator.opening(16)


def test_cost_is_what_is_copied() -> None:
    """b is full and d holds 10 written slots: d is the one to move, into the hole before it."""
    cost = {1024: 1024, 3072: 10, 5120: 1024, 7168: 1024}
    plan = plan_for(F0, 8192, 2048, cost)
    assert plan is not None and plan_price(plan, cost) == 10
    assert [region.start for region, _ in plan] == [3072]


def test_bounded_slide_is_a_beginning() -> None:
    """2,500 slots a step: b and d, then f and h in the next step; with 1,000 nothing moves."""
    assert bounded_slide(F0, 2500) == full_slide(F0)[:2]
    assert bounded_slide(F0, 1000) == []
    assert bounded_slide(F0, 2048, {1024: 9, 3072: 9, 5120: 9, 7168: 2022}) == full_slide(F0)[:3]


def test_final_places_follow_a_region() -> None:
    """8 goes to 4 and on to 0, and 12 comes to 8: by their first starts."""
    plan = [(Region(8, 4), 4), (Region(4, 4), 0), (Region(12, 4), 8)]
    assert final_places(plan) == {8: 0, 12: 8}
    assert plan_price(plan, {8: 3, 12: 1}) == 7


@given(regions(), st.integers(0, 12), st.integers(1, 60), st.data())
def test_opens_the_hole_at_no_higher_price(
    live: list[Region], tail: int, need: int, data: st.DataObject
) -> None:
    """A plan overwrites what is still to go, opens too little, or costs more than a slide."""
    capacity = max((r.end for r in live), default=0) + tail
    cost = {r.start: data.draw(st.integers(0, r.size)) for r in live}
    plan = plan_for(live, capacity, need, cost)
    free = capacity - sum(r.size for r in live)
    assert (plan is None) == (need > free)
    if plan is None:
        return
    owners = [-1] * capacity
    for name, region in enumerate(live):
        owners[region.start : region.end] = [name] * region.size
    for region, start in plan:
        name = owners[region.start]
        assert (
            owners[region.start : region.end]
            == [name] * region.size
            == [live.index(region)] * (region.size)
        )
        owners[region.start : region.end] = [-1] * region.size
        assert set(owners[start : start + region.size]) == {-1}
        owners[start : start + region.size] = [name] * region.size
    after = [Region(final_places(plan).get(r.start, r.start), r.size) for r in live]
    assert max(hole.size for hole in holes_between(after, capacity)) >= need
    assert plan_price(plan, cost) <= plan_price(full_slide(live), cost)
