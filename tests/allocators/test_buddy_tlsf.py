"""Buddy and TLSF by hand: rounding, forests, what they refuse although a hole would do."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.allocators.buddies import free_around, pair_up, trees
from kvviz.allocators.buddy import BuddyAllocator
from kvviz.allocators.compact import final_places
from kvviz.allocators.tlsf import TlsfAllocator, class_floor, rounded_up, size_class
from kvviz.records import Region


def test_forest() -> None:
    """24 = 16 + 8: 17 slots can never be, though 24 are free; blocks of 16 and 8 touch."""
    allocator = BuddyAllocator(24)
    assert allocator.holes() == [Region(0, 16), Region(16, 8)]
    assert (allocator.largest, allocator.largest_possible, allocator.free_slots) == (16, 16, 24)
    assert allocator.allocate(17) is None
    assert trees(27) == [(0, 4), (16, 3), (24, 1), (26, 0)]


def test_rounding_is_told() -> None:
    """5 slots take 8, and of a unit of 4, 3 slots take 4."""
    allocator = BuddyAllocator(24)
    assert allocator.granted(5) == allocator.hole_for(5) == 8
    assert allocator.allocate(5) == Region(16, 8)
    assert allocator.free_slots == 16
    assert [BuddyAllocator(24, unit=4).granted(size) for size in (3, 4, 5, 9)] == [4, 4, 8, 16]


def test_rest_behind_the_last_unit() -> None:
    """22 slots in units of 4: two are nobody's, and are shown as a hole that serves no one."""
    allocator = BuddyAllocator(22, unit=4)
    assert allocator.holes() == [Region(0, 16), Region(16, 4), Region(20, 2)]
    assert [allocator.allocate(1) for _ in range(6)] == [
        Region(start, 4) for start in (16, 0, 4, 8, 12)
    ] + [None]
    assert (allocator.free_slots, allocator.largest) == (2, 0)
    small = BuddyAllocator(3, unit=4)
    assert (small.largest_possible, small.allocate(1)) == (0, None)


def test_blocks_that_touch_but_are_no_buddies() -> None:
    """|0|1|2|3|: 1 and 2 are free and touch, and 2 slots are refused; with 3 free 2|3 merge."""
    allocator = BuddyAllocator(4)
    regions = [allocator.allocate(1) for _ in range(4)]
    allocator.free(regions[1])
    allocator.free(regions[2])
    assert (allocator.free_slots, allocator.largest, allocator.allocate(2)) == (2, 1, None)
    allocator.free(regions[3])
    assert allocator.allocate(2) == Region(2, 2)


def test_growth_doubles_into_the_right_buddy() -> None:
    """The left one of a pair may double, twice if it must; the right one can't, though the slots
    behind it are free."""
    allocator = BuddyAllocator(16)
    left, right = allocator.allocate(2), allocator.allocate(2)
    assert allocator.extend(left, 1) is None
    assert allocator.extend(right, 1) is None
    allocator.free(right)
    assert allocator.extend(left, 5) == Region(0, 8)
    assert (allocator.free_slots, allocator.holes()) == (8, [Region(8, 8)])
    assert allocator.extend(Region(0, 8), 9) is None


def test_deferred_growth_takes_unmerged_halves() -> None:
    allocator = BuddyAllocator(8, coalesce="deferred")
    first, *others = [allocator.allocate(2) for _ in range(4)]
    for region in others:
        allocator.free(region)
    assert allocator.hole_count == 3
    assert allocator.extend(first, 6) == Region(0, 8)
    allocator.check()


def test_opening_clears_the_cheapest_block() -> None:
    """|a.|bb|c.|..| in pairs: 4 are wanted; c's half holds one slot, which goes beside a. If c
    is dear, the other half is cleared, the larger region first."""
    allocator = BuddyAllocator(8)
    for _ in range(2):
        allocator.allocate(1)
    allocator.allocate(2)
    allocator.allocate(1)
    allocator.free(Region(1, 1))
    assert allocator.opening(4) == [(Region(4, 1), 1)]
    assert allocator.opening(4, {0: 1, 2: 2, 4: 9}) == [(Region(2, 2), 6), (Region(0, 1), 5)]
    assert allocator.opening(8) is None


def test_a_block_under_a_larger_region_is_no_window() -> None:
    """|8 x 8|1.|1.|1.|1.|, 4 wanted: nothing starts in the second half of the 8, and still it
    is not free; two single slots move beside the other two."""
    allocator = BuddyAllocator(16)
    allocator.allocate(8)
    for _ in range(8):
        allocator.allocate(1)
    for region in allocator.live()[2::2]:
        allocator.free(region)
    assert allocator.opening(4) == [(Region(8, 1), 13), (Region(10, 1), 15)]


def scattered() -> BuddyAllocator:
    """|88888888|1...|1...|4444....|22......|: 16 of 32 slots are free."""
    allocator = BuddyAllocator(32)
    for sizes, freed in (
        ((8, 8, 8, 8), 16),
        ((4, 4), 24),
        ((2, 2, 4), 8),
        ((4, 4), 8),
        ((1, 1, 2), 12),
        ((1,), None),
    ):
        for size in sizes:
            allocator.allocate(size)
        if freed is not None:
            allocator.free(next(r for r in allocator.live() if r.start == freed))
    for region in allocator.live():
        if region.start in (9, 10, 20, 26, 28):
            allocator.free(region)
    return allocator


def test_pairing_up_where_no_block_can_be_cleared_at_once() -> None:
    """16 are wanted: the 8 finds no room in the upper half, and the 4 none in the lower, so
    small blocks are paired up first. A slide would put the 2 at an odd place: an error."""
    allocator = scattered()
    assert [r.start for r in allocator.live()] == [0, 8, 12, 16, 24]
    assert (allocator.free_slots, allocator.largest) == (16, 4)
    plan = allocator.opening(16)
    sources = [region.start for region, _ in plan]
    assert len(sources) >= len(final_places(plan)) > 0
    allocator.relocate(final_places(plan))
    assert allocator.allocate(16) is not None
    with pytest.raises(AssertionError, match="a block of 8 slots can't start at 2"):
        scattered().relocate({0: 2})


@given(st.integers(1, 70), st.lists(st.integers(0, 3), max_size=40), st.randoms())
def test_pairing_up_opens_all_that_is_free(units: int, orders: list[int], random: Random) -> None:
    """Whatever lies where: of F free units, the largest power of two within F becomes one block,
    and at no time is a slot overwritten."""
    allocator = BuddyAllocator(units)
    for region in [r for k in orders if (r := allocator.allocate(1 << k)) is not None]:
        if random.random() < 0.5:
            allocator.free(region)
    live = {region.start: region.size.bit_length() - 1 for region in allocator.live()}
    for target in range(allocator.free_slots.bit_length()):
        now = dict(live)
        for start, to in pair_up(units, live, target):
            order = now.pop(start)
            assert not any(s < to + (1 << order) and to < s + (1 << k) for s, k in now.items())
            now[to] = order
        assert free_around(units, now.items()).top >= target


@given(st.integers(1, 1 << 22))
def test_size_classes(size: int) -> None:
    """A class must hold the sizes from its floor to the next one's, and a rounded request must
    be the floor of its class; waste of the rounding is at most 1/32."""
    number = size_class(size)
    assert class_floor(number) <= size < class_floor(number + 1)
    up = rounded_up(size)
    assert class_floor(size_class(up)) == up >= size
    assert (up - size) * 32 < size
    assert size >= 64 or up == size


def test_good_fit_misses_a_hole_that_would_do() -> None:
    """One hole of 131: 130 is rounded up to 132 and refused; 128 is found. `largest` says so."""
    allocator = TlsfAllocator(131 + 896)
    region = allocator.allocate(131)
    assert allocator.allocate(896) is not None
    allocator.free(region)
    assert allocator.holes() == [Region(0, 131)]
    assert (allocator.largest, allocator.allocate(130)) == (128, None)
    assert allocator.allocate(128) == Region(0, 128)


def test_largest_possible_is_below_an_odd_pool() -> None:
    """8,191 slots lie in the class from 8,064 on: 8,065 can never be granted."""
    allocator = TlsfAllocator(8191)
    assert allocator.largest_possible == allocator.largest == 8064
    assert allocator.allocate(8065) is None
    assert allocator.allocate(8064) == Region(0, 8064)


def test_good_fit_takes_the_smallest_class() -> None:
    """Holes of 300, 40, 70 and 40: 38 go into a 40, by address the lower, else the later one."""
    for order, start in (("address", 310), ("lifo", 450)):
        allocator = TlsfAllocator(500, order=order)
        rows = [allocator.allocate(n) for n in (300, 10, 40, 10, 70, 20, 40, 10)]
        for row in rows[::2]:
            allocator.free(row)
        assert allocator.allocate(38) == Region(start, 38)
