"""Every allocator, with each way of merging and each order of searching, under the same rules."""

from __future__ import annotations

import copy
import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvviz.allocators.allocator import COALESCE, ORDERS, Allocator, Plan
from kvviz.allocators.compact import bounded_slide, final_places, full_slide
from kvviz.allocators.fits import CHOICES
from kvviz.allocators.kinds import ALLOCATORS
from kvviz.records import HOLE, Region
from tests.helpers import runs
from tests.strategies import sizes

KINDS = sorted(itertools.product(ALLOCATORS, COALESCE, ORDERS))


def state(allocator: Allocator) -> tuple:
    """Everything that a caller can see."""
    return (
        allocator.holes(),
        allocator.live(),
        allocator.free_slots,
        allocator.hole_count,
        allocator.largest,
        allocator.allocations,
        allocator.remainders,
    )


class AllocatorMachine(RuleBasedStateMachine):
    """A list knows who owns each slot; the allocator must agree with it after every call."""

    def __init__(self, kind: str, coalesce: str, order: str) -> None:
        super().__init__()
        self.kind, self.coalesce, self.order = kind, coalesce, order
        self.regions: dict[int, Region] = {}
        self.named = self.granted = self.left_over = 0

    @initialize(capacity=sizes(150), wanted=st.lists(sizes(16), max_size=14), odd=st.booleans())
    def start(self, capacity: int, wanted: list[int], odd: bool) -> None:
        """Begin with holes: every second region of the first ones is freed."""
        make = ALLOCATORS[self.kind]
        self.allocator = make(capacity, coalesce=self.coalesce, order=self.order)
        self.owners = [HOLE] * capacity
        assert self.allocator.largest == self.allocator.largest_possible <= capacity
        for size in wanted:
            self.allocate(size)
        for name in list(self.regions)[odd::2]:
            self._release(name)

    @rule(size=st.one_of(sizes(12), sizes(150)))
    def allocate(self, size: int) -> None:
        before, fits = state(self.allocator), self.allocator.fits(size)
        largest_hole = max((h.size for h in runs(self.owners)), default=0)
        region = self.allocator.allocate(size)
        assert (region is not None) == fits == (size <= before[4])
        if region is None:
            assert state(self.allocator) == before
            if self.kind in CHOICES:
                assert size > largest_hole
            return
        assert region.size == self.allocator.granted(size) >= size
        assert size <= self.allocator.largest_possible
        self.granted += 1
        self._own(region)

    @rule()
    def allocate_the_largest(self) -> None:
        """One slot more is refused, and this much is granted, after a merge if that is due."""
        largest = self.allocator.largest
        assert self.allocator.allocate(largest + 1) is None
        if largest:
            self.allocate(largest)

    @precondition(lambda self: self.regions)
    @rule(data=st.data(), extra=sizes(20))
    def extend(self, data: st.DataObject, extra: int) -> None:
        name = self._pick(data)
        region, before = self.regions[name], state(self.allocator)
        grown = self.allocator.extend(region, extra)
        if grown is None:
            assert state(self.allocator) == before
            behind = self.owners[region.end : region.end + extra]
            room = len(behind) == extra and set(behind) == {HOLE}
            assert self.kind == "buddy" or not room
            return
        assert grown.start == region.start and grown.size >= region.size + extra
        assert self.kind == "buddy" or grown.size == region.size + extra
        self._own(grown, name)

    @precondition(lambda self: self.regions)
    @rule(data=st.data(), count=st.integers(1, 3))
    def free(self, data: st.DataObject, count: int) -> None:
        """Neighbours by name often lie side by side, so that holes touch."""
        names = sorted(self.regions)
        at = names.index(self._pick(data))
        for name in names[at : at + count]:
            self._release(name)

    @precondition(lambda self: self.regions)
    @rule(data=st.data())
    def misuse(self, data: st.DataObject) -> None:
        """What was freed can't be freed, and nobody's region can't grow."""
        name = self._pick(data)
        region = self.regions[name]
        with pytest.raises(AssertionError, match="extend of a stranger"):
            self.allocator.extend(Region(region.start, region.size + 1), 1)
        self._release(name)
        with pytest.raises(AssertionError, match="free of"):
            self.allocator.free(region)

    @rule()
    def repack(self) -> None:
        self._carry_out(self.allocator.repack())
        if self.allocator.can_slide:
            assert len(self.allocator.holes()) <= 1
        free = self.allocator.free_slots
        assert free == 0 or self.allocator.granted(self.allocator.largest) * 2 > free

    @rule(share=st.integers(1, 16))
    def open_up(self, share: int) -> None:
        need = max(1, self.allocator.free_slots * share // 16)
        before = state(self.allocator)
        plan = self.allocator.opening(need)
        assert state(self.allocator) == before
        if plan is None:
            after = copy.deepcopy(self.allocator)
            after.relocate(final_places(after.repack()))
            assert not after.fits(need)
            return
        if self.allocator.fits(need):
            assert plan == []
        self._carry_out(plan)
        assert self.allocator.fits(need)

    @precondition(lambda self: self.allocator.can_slide)
    @rule(budget=st.integers(0, 60))
    def slide_a_little(self, budget: int) -> None:
        whole = full_slide(self.allocator.live())
        plan = bounded_slide(self.allocator.live(), budget)
        copied = sum(region.size for region, _ in plan)
        assert plan == whole[: len(plan)] and copied <= budget
        if len(plan) < len(whole):
            assert copied + whole[len(plan)][0].size > budget
        self._carry_out(plan)

    @rule(coalesce=st.sampled_from(COALESCE), order=st.sampled_from(ORDERS))
    def reconfigure(self, coalesce: str, order: str) -> None:
        largest, live = self.allocator.largest, self.allocator.live()
        self.coalesce, self.order = coalesce, order
        self.allocator.reconfigure(coalesce=coalesce, order=order)
        assert (self.allocator.largest, self.allocator.live()) == (largest, live)

    @invariant()
    def agrees(self) -> None:
        self.allocator.check()
        holes = self.allocator.holes()
        free = [slot for hole in holes for slot in range(hole.start, hole.end)]
        assert free == [slot for slot, owner in enumerate(self.owners) if owner == HOLE]
        assert len(holes) == self.allocator.hole_count
        assert self.allocator.free_slots == len(free)
        assert self.allocator.live() == sorted(self.regions.values())
        for name, region in self.regions.items():
            assert set(self.owners[region.start : region.end]) == {name}
        assert self.allocator.allocations == self.granted >= self.allocator.remainders
        if self.coalesce == "immediate" and self.kind != "buddy":
            assert holes == runs(self.owners)
        if self.kind in CHOICES:
            expected = max((h.size for h in runs(self.owners)), default=0)
            assert self.allocator.largest == expected

    def teardown(self) -> None:
        """Freeing all of them restores the start."""
        if hasattr(self, "owners"):
            for name in list(self.regions):
                self._release(name)
            assert self.allocator.largest == self.allocator.largest_possible
            assert self.allocator.free_slots == len(self.owners)

    def _carry_out(self, plan: Plan) -> None:
        """Copy slot by slot, in this order: no copy may overwrite what is still to go."""
        for region, target in plan:
            name = self.owners[region.start]
            assert self.regions[name] == region
            self.owners[region.start : region.end] = [HOLE] * region.size
            assert set(self.owners[target : target + region.size]) == {HOLE}
            self._own(Region(target, region.size), name)
        self.allocator.relocate(final_places(plan))

    def _pick(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.regions)))

    def _own(self, region: Region, name: int | None = None) -> None:
        if name is None:
            self.named += 1
            name = self.named
        now = set(self.owners[region.start : region.end])
        assert now <= {HOLE, name}, f"{region} overlaps {now}"
        self.owners[region.start : region.end] = [name] * region.size
        self.regions[name] = region

    def _release(self, name: int) -> None:
        region = self.regions.pop(name)
        self.allocator.free(region)
        self.owners[region.start : region.end] = [HOLE] * region.size


@pytest.mark.untraced
@pytest.mark.parametrize(("kind", "coalesce", "order"), KINDS)
def test_same_rules_for_all(kind: str, coalesce: str, order: str) -> None:
    """Regions overlap, slots are lost, a refusal changes something, or `fits` lies."""
    run_state_machine_as_test(
        lambda: AllocatorMachine(kind, coalesce, order),
        settings=settings(max_examples=25, stateful_step_count=25),
    )
