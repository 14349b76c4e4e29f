"""The searched fits against those that look at every hole, and the order of freeing by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.allocators.allocator import COALESCE, ORDERS
from kvviz.allocators.fits import CHOICES, FitAllocator
from kvviz.allocators.indices import RecentIndex
from kvviz.allocators.kinds import ALLOCATORS
from kvviz.allocators.maxtree import MaxTree
from kvviz.bench.linear import LinearAllocator
from kvviz.errors import ConfigError
from kvviz.records import Region
from tests.strategies import sizes


@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 9)), max_size=60),
)
def test_tree_against_a_list(width: int, puts: list[tuple[int, int]]) -> None:
    """A maximum is stale, or the search misses the first of several."""
    tree, sizes = MaxTree(width), [0] * width
    for at, size in puts:
        at %= width
        tree.put(at, size)
        sizes[at] = size
        tree.check()
        assert tree.sizes()[:width].tolist() == sizes
        assert tree.top == max(sizes)
    for need, start in itertools.product(range(1, 11), range(width + 2)):
        expected = next((i for i in range(start, width) if sizes[i] >= need), -1)
        assert tree.first(need, start) == expected


def operations() -> st.SearchStrategy[list[tuple[str, int, int]]]:
    """(verb, which live region, how much)"""
    verbs = st.sampled_from(["allocate"] * 4 + ["free"] * 3 + ["extend"])
    return st.lists(st.tuples(verbs, st.integers(0, 50), sizes(25)), max_size=80)


@pytest.mark.parametrize("fit", sorted(CHOICES))
@given(capacity=sizes(200), calls=operations())
def test_same_as_linear(fit: str, capacity: int, calls: list[tuple[str, int, int]]) -> None:
    """A search finds another hole than looking at all of them does."""
    fast, slow = FitAllocator(capacity, fit), LinearAllocator(capacity, fit)
    live: list[Region] = []
    for verb, pick, size in calls:
        if verb == "allocate":
            region = fast.allocate(size)
            assert region == slow.allocate(size)
            live += [region] if region is not None else []
        elif live:
            region = live.pop(pick % len(live))
            if verb == "free":
                fast.free(region)
                slow.free(region)
            else:
                grown = fast.extend(region, size)
                assert grown == slow.extend(region, size)
                live.append(grown or region)
        assert fast.holes() == slow.holes()


class Stamped:
    """Holes by when they were freed, looked at one by one: the yardstick of `lifo`."""

    def __init__(self, rove: bool) -> None:
        self.rove, self.clock, self.rover = rove, 0, 0
        self.holes: dict[int, tuple[int, int]] = {}  # start -> (stamp, size)

    def add(self, start: int, size: int) -> None:
        self.clock += 1
        self.holes[start] = (self.clock, size)

    def find(self, need: int) -> int:
        able = [(stamp, start) for start, (stamp, size) in self.holes.items() if size >= need]
        older = [hole for hole in able if hole[0] <= self.rover]
        return max((older if self.rove and older else able), default=(0, -1))[1]

    def cut(self, start: int, taken: int) -> None:
        self.rover, size = self.holes.pop(start)
        if size > taken:
            self.holes[start + taken] = (self.rover, size - taken)


@pytest.mark.parametrize("rove", [False, True])
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=250))
@settings(max_examples=40)
def test_order_of_freeing_against_stamps(rove: bool, calls: list[tuple[bool, int]]) -> None:
    """The order or the rover is lost, at the latest when places are numbered anew."""
    fast, slow = RecentIndex(rove), Stamped(rove)
    for number, (adds, size) in enumerate([(True, 5)] * 61 + [(False, 3), *calls, (False, 1)]):
        start = fast.find(size, 0)
        assert start == slow.find(size)
        if adds or start < 0:
            fast.add(10 * number, size)
            slow.add(10 * number, size)
        else:
            fast.cut(start, slow.holes[start][1], size)
            slow.cut(start, size)
    fast.check(sorted(Region(start, size) for start, (_, size) in slow.holes.items()))


def freed(fit: str, *starts: int, coalesce: str = "immediate") -> FitAllocator:
    """100 slots in regions of 10, `lifo`; those at `starts` were freed, in this order."""
    allocator = FitAllocator(100, fit, coalesce=coalesce, order="lifo")
    regions = [allocator.allocate(10) for _ in range(10)]
    for start in starts:
        allocator.free(regions[start // 10])
    return allocator


def taken(allocator: FitAllocator, *wanted: int) -> list[int]:
    return [allocator.allocate(size).start for size in wanted]


def test_last_in_first_out() -> None:
    """What was freed last goes first, and what is left of it keeps its turn."""
    assert taken(freed("first", 40, 0, 70), 6, 4, 3, 7, 1) == [70, 76, 0, 3, 40]


def test_next_fit_goes_down_the_list() -> None:
    """The search goes on from the hole it took last, down to the oldest, then round; what is
    freed meanwhile stands at the head and waits for the next round."""
    allocator = freed("next", 40, 0, 70)
    assert taken(allocator, 8, 8) == [70, 0]
    allocator.free(Region(20, 10))
    assert taken(allocator, 8, 8, 2) == [40, 20, 28]


def test_a_merged_hole_counts_as_freed_now() -> None:
    """40 was freed first; merged with 50 it goes ahead of 0 and 80."""
    assert taken(freed("first", 40, 0, 80, 50), 10) == [40]


def test_order_of_freeing_survives_many_frees() -> None:
    """Places in the list run out and are numbered anew: the order must stay."""
    allocator = FitAllocator(1000, "next", order="lifo")
    regions = [allocator.allocate(2) for _ in range(500)]
    for region in regions[::2]:
        allocator.free(region)
        allocator.check()
    assert taken(allocator, *[2] * 250) == [region.start for region in reversed(regions[::2])]


def test_deferred_rows_stay_apart_until_needed() -> None:
    """0, 10 and 20 are free, unmerged: 15 are promised, and granted after a merge; 25 would
    not be, and change nothing."""
    allocator = FitAllocator(40, "first", coalesce="deferred")
    regions = [allocator.allocate(10) for _ in range(4)]
    for region in (regions[1], regions[0], regions[3]):
        allocator.free(region)
    apart = [Region(0, 10), Region(10, 10), Region(30, 10)]
    assert (allocator.holes(), allocator.hole_count, allocator.largest) == (apart, 3, 20)
    assert allocator.allocate(25) is None
    assert allocator.holes() == apart
    assert allocator.allocate(15) == Region(0, 15)
    assert allocator.holes() == [Region(15, 5), Region(30, 10)]


def test_deferred_growth_takes_rows_that_touch() -> None:
    """The hole behind is too small, but the next one touches it: growth does not ask for a
    merge of everything."""
    allocator = FitAllocator(50, "first", coalesce="deferred")
    regions = [allocator.allocate(10) for _ in range(5)]
    for region in (regions[1], regions[2], regions[3]):
        allocator.free(region)
    assert allocator.extend(regions[0], 15) == Region(0, 25)
    assert allocator.holes() == [Region(25, 5), Region(30, 10)]


@pytest.mark.parametrize("name", sorted(ALLOCATORS))
def test_remainders_are_counted(name: str) -> None:
    """Knuth's p: of three grants from 16 slots, the first two cut a hole, the third fills one;
    a refusal and growth are no grants."""
    allocator = ALLOCATORS[name](16)
    assert [allocator.allocate(size).size for size in (8, 4, 4)] == [8, 4, 4]
    assert allocator.allocate(1) is None
    assert (allocator.allocations, allocator.remainders) == (3, 2)


@pytest.mark.parametrize("name", sorted(ALLOCATORS))
def test_unknown_policy_lists_the_known(name: str) -> None:
    with pytest.raises(ConfigError, match="coalesce=lazy: one of immediate, deferred was"):
        ALLOCATORS[name](16, coalesce="lazy")
    with pytest.raises(ConfigError, match="order=fifo: one of address, lifo was"):
        ALLOCATORS[name](16).reconfigure(order="fifo")


@pytest.mark.parametrize("name", sorted(ALLOCATORS))
@pytest.mark.parametrize("coalesce", COALESCE)
@pytest.mark.parametrize("order", ORDERS)
def test_baseline_f0(name: str, coalesce: str, order: str) -> None:
    """8 x 1024 of 8192, every second one freed: none of them serves 2048, all of them open it
    for one move of 1024."""
    allocator = ALLOCATORS[name](8192, coalesce=coalesce, order=order)
    letters = [allocator.allocate(1024) for _ in range(8)]
    for region in letters[::2]:
        allocator.free(region)
    assert (allocator.free_slots, allocator.largest, allocator.hole_count) == (4096, 1024, 4)
    assert allocator.allocate(2048) is None
    plan = allocator.opening(2048)
    assert sum(region.size for region, _ in plan) == 1024
    allocator.relocate({region.start: start for region, start in plan})
    assert allocator.allocate(2048) is not None
