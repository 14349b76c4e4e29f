"""Contiguous allocation against a plain list of slot owners, for every fit."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvviz.allocators.compact import full_slide
from kvviz.allocators.fits import CHOICES, FitAllocator
from kvviz.records import HOLE, Region
from tests.helpers import runs
from tests.strategies import regions, sizes

ALL_FITS = sorted(CHOICES)


def chosen_hole(fit: str, holes: list[Region], need: int, rover: int) -> Region | None:
    """The hole a fit must take, told by its textbook definition."""
    able = [h for h in holes if h.size >= need]
    if not able:
        return None
    if fit == "best":
        return min(able, key=lambda h: (h.size, h.start))
    if fit == "worst":
        return min(able, key=lambda h: (-h.size, h.start))
    if fit == "next":
        return min(able, key=lambda h: (h.start < rover, h.start))
    return able[0]


class FitMachine(RuleBasedStateMachine):
    """Allocate, extend, free, slide and change the fit; a list knows who owns each slot."""

    def __init__(self, fit: str, swaps: bool = False) -> None:
        super().__init__()
        self.fit, self.swaps = fit, swaps
        self.rover = 0
        self.named = 0
        self.regions: dict[int, Region] = {}

    @initialize(capacity=sizes(80), wanted=st.lists(sizes(12), max_size=12), odd=st.booleans())
    def start(self, capacity: int, wanted: list[int], odd: bool) -> None:
        """Begin with holes: every second region of the first ones is freed."""
        self.allocator = FitAllocator(capacity, self.fit)
        self.owners = [HOLE] * capacity
        for size in wanted:
            self._allocate(size)
        for name in list(self.regions)[odd::2]:
            self._release(name, self.regions[name])

    @rule(size=sizes(30))
    def allocate(self, size: int) -> None:
        self._allocate(size)

    def _allocate(self, size: int) -> None:
        hole = chosen_hole(self.fit, runs(self.owners), size, self.rover)
        region = self.allocator.allocate(size)
        expected = None if hole is None else Region(hole.start, size)
        assert region == expected
        if region is not None:
            self._own(region)
            self.rover = region.end

    @precondition(lambda self: self.regions)
    @rule(data=st.data(), extra=sizes(12))
    def extend(self, data: st.DataObject, extra: int) -> None:
        name, region = self._pick(data)
        behind = self.owners[region.end : region.end + extra]
        room = len(behind) == extra and set(behind) == {HOLE}
        grown = self.allocator.extend(region, extra)
        expected = Region(region.start, region.size + extra) if room else None
        assert grown == expected
        if grown is not None:
            self._own(grown, name)

    @precondition(lambda self: self.regions)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        name, region = self._pick(data)
        self._release(name, region)

    @precondition(lambda self: self.regions)
    @rule(data=st.data())
    def free_twice(self, data: st.DataObject) -> None:
        name, region = self._pick(data)
        self._release(name, region)
        with pytest.raises(AssertionError, match="free of"):
            self.allocator.free(region)

    @precondition(lambda self: self.regions)
    @rule(data=st.data())
    def extend_a_stranger(self, data: st.DataObject) -> None:
        _, region = self._pick(data)
        with pytest.raises(AssertionError, match="extend of a stranger"):
            self.allocator.extend(Region(region.start, region.size + 1), 1)

    @rule()
    def slide(self) -> None:
        names = {region.start: name for name, region in self.regions.items()}
        plan = full_slide(self.regions.values())
        for region, target in plan:  # in this order no copy may overwrite what is still to go
            name = names[region.start]
            assert set(self.owners[region.start : region.end]) == {name}
            self.owners[region.start : region.end] = [HOLE] * region.size
            assert set(self.owners[target : target + region.size]) == {HOLE}
            self._own(Region(target, region.size), name)
        self.allocator.relocate({region.start: target for region, target in plan})
        assert len(runs(self.owners)) <= 1

    @precondition(lambda self: self.swaps)
    @rule(fit=st.sampled_from(ALL_FITS))
    def swap_the_fit(self, fit: str) -> None:
        self.fit = fit
        self.allocator.choice = CHOICES[fit]

    @invariant()
    def agrees(self) -> None:
        self.allocator.check()
        holes = runs(self.owners)
        assert self.allocator.holes() == holes
        assert self.allocator.hole_count == len(holes)
        assert self.allocator.largest == max((h.size for h in holes), default=0)
        assert self.allocator.free_slots == self.owners.count(HOLE)
        assert self.allocator.live() == sorted(self.regions.values())
        for name, region in self.regions.items():
            assert set(self.owners[region.start : region.end]) == {name}

    def teardown(self) -> None:
        """Freeing all of them restores one hole."""
        for name, region in list(self.regions.items()):
            self._release(name, region)
        if hasattr(self, "owners"):
            assert self.allocator.holes() == [Region(0, len(self.owners))]

    def _pick(self, data: st.DataObject) -> tuple[int, Region]:
        return data.draw(st.sampled_from(sorted(self.regions.items())))

    def _own(self, region: Region, name: int | None = None) -> None:
        if name is None:
            self.named += 1
            name = self.named
        self.owners[region.start : region.end] = [name] * region.size
        self.regions[name] = region

    def _release(self, name: int, region: Region) -> None:
        self.allocator.free(region)
        self.owners[region.start : region.end] = [HOLE] * region.size
        del self.regions[name]


MACHINE = settings(max_examples=40, stateful_step_count=30)


@pytest.mark.untraced
@pytest.mark.parametrize("fit", ALL_FITS)
def test_fit_against_a_list(fit: str) -> None:
    """The allocator and a list of slot owners disagree on a hole, a choice or a refusal."""
    run_state_machine_as_test(lambda: FitMachine(fit), settings=MACHINE)


@pytest.mark.untraced
def test_fit_swapped_while_regions_live() -> None:
    """A fit that was chosen half-way leaves something of the old one behind."""
    run_state_machine_as_test(lambda: FitMachine("first", swaps=True), settings=MACHINE)


def pool_with_holes(fit: str, *holes: tuple[int, int]) -> FitAllocator:
    """A full pool of 100 slots with these (start, size) holes, in the order of freeing."""
    allocator = FitAllocator(100, fit)
    cuts = sorted({0, 100, *(s for s, _ in holes), *(s + n for s, n in holes)})
    rows = {a: allocator.allocate(b - a) for a, b in itertools.pairwise(cuts)}
    for start, _ in holes:
        allocator.free(rows[start])
    return allocator


@pytest.mark.parametrize(
    ("fit", "start"), [("first", 10), ("best", 60), ("worst", 25), ("next", 10)]
)
def test_choice_by_hand(fit: str, start: int) -> None:
    """Holes of 8, 19, 6, 6 and 19 slots, 5 wanted: the lowest; the smallest, and of two sixes
    the lower; the largest, and of two the lower; the next one, round the end of the pool."""
    allocator = pool_with_holes(fit, (10, 8), (25, 19), (60, 6), (70, 6), (80, 19))
    assert allocator.allocate(5) == Region(start, 5)


def test_next_fit_goes_on_from_the_last_allocation() -> None:
    """Next fit starts from the bottom again: then it is first fit."""
    allocator = pool_with_holes("next", (10, 5), (40, 10), (70, 10))
    taken = [allocator.allocate(4) for _ in range(5)]
    assert taken == [Region(10, 4), Region(40, 4), Region(44, 4), Region(70, 4), Region(74, 4)]
    assert allocator.allocate(1) == Region(78, 1)
    assert [allocator.allocate(1), allocator.allocate(2)] == [Region(79, 1), Region(48, 2)]


def test_next_fit_does_not_go_back_for_what_was_freed() -> None:
    """The search goes on from the end of the last region, not from its start, although that is
    a hole by now."""
    allocator = pool_with_holes("next", (10, 5), (40, 10))
    allocator.free(allocator.allocate(5))
    assert allocator.allocate(3) == Region(40, 3)


def test_refusal_changes_nothing() -> None:
    """A refused allocation moves the rover or loses a hole."""
    allocator = pool_with_holes("next", (10, 5), (40, 10))
    allocator.allocate(2)
    before = allocator.holes(), allocator.live(), allocator.free_slots
    assert allocator.allocate(11) is None
    assert (allocator.holes(), allocator.live(), allocator.free_slots) == before
    assert allocator.allocate(2) == Region(12, 2)


def test_empty_region_is_refused() -> None:
    """A region of no slots would share its start, its only name, with another one."""
    with pytest.raises(AssertionError, match="at least one slot"):
        FitAllocator(8).allocate(0)


@given(regions())
def test_full_slide_packs_and_keeps_the_order(live: list[Region]) -> None:
    """Compaction leaves a hole, changes the order of regions, or copies one in vain."""
    plan = dict(full_slide(live))
    after = [Region(plan.get(r, r.start), r.size) for r in sorted(live)]
    assert [r.start for r in after] == [sum(r.size for r in after[:i]) for i in range(len(after))]
    assert all(target < region.start for region, target in plan.items())
    assert list(plan) == sorted(plan)
