"""Rules, bounds, classes and books: worked by hand, and on pools reported in public."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz import metrics
from kvviz.records import CAPACITY, FRAGMENTED, HOLE
from tests.metrics.test_formulas import F0, pool
from tests.strategies import hole_sizes

asks = st.integers(1, 500)


@pytest.mark.parametrize(
    ("sizes", "request_size", "kind", "value", "shown"),
    [
        ([256, 256], 400, FRAGMENTED, -0.14, 0.0),
        ([183, 183, 182], 2048, CAPACITY, 0.578, 0.578),
        ([1] * 3328, 2, FRAGMENTED, 0.4997, 0.4997),
        ([44] * 300, 50, FRAGMENTED, 0.117, 0.117),
        ([1024] * 4, 2048, FRAGMENTED, 0.25, 0.25),
        ([2048, 10], 2048, metrics.FITS, None, None),
        ([], 5, CAPACITY, 0.0, 0.0),
    ],
)
def test_the_class_is_told_before_the_index(
    sizes: list[int], request_size: int, kind: str, value: float | None, shown: float | None
) -> None:
    """0.578 would be read as fragmentation where memory is short, -0.14 as lack of memory, or a
    gauge would leave its scale."""
    found = metrics.fragmentation(np.array(sizes, np.int64), request_size)
    assert found.kind == kind
    assert found.value == (value if value is None else pytest.approx(value, abs=6e-4))
    assert found.shown == (shown if shown is None else pytest.approx(shown, abs=6e-4))


@given(hole_sizes(), asks)
def test_classes_are_those_of_a_verdict(holes: list[int], request: int) -> None:
    """The gauge and the verdict beside it would tell two stories."""
    found = metrics.fragmentation(np.array(holes, np.int64), request)
    if max(holes, default=0) >= request:
        assert found == metrics.Fragmentation(metrics.FITS, None)
    else:
        assert found.kind == (CAPACITY if sum(holes) < request else FRAGMENTED)
        assert 0 <= found.shown <= 1


def test_unusable_curve_of_the_baseline() -> None:
    """Four holes of 1024: 512 and 1024 leave nothing, 600 leaves 424 of each, 1025 all; paged
    256 free blocks of 16: 4 x 1000 take 63 blocks each and 4 blocks are left."""
    holes = metrics.holes(F0)
    sizes = np.array([512, 600, 1024, 1025])
    assert metrics.unusable_curve(holes, None, 4096, sizes).tolist() == [0, 424 / 1024, 0, 1]
    paged = metrics.unusable_curve(np.array([4096]), 16, 4096, np.array([1000, 4096, 4097]))
    assert paged.tolist() == [4 / 256, 0, 1]
    assert metrics.unusable_curve(holes[:0], None, 0, sizes).tolist() == [1] * 4


def test_small_holes_are_of_no_use_to_a_larger_request() -> None:
    """300 holes of 44, asked for 50; 3328 holes of 1, asked for 2."""
    for sizes, ask in (([44] * 300, 50), ([1] * 3328, 2)):
        curve = metrics.unusable_curve(np.array(sizes), None, sum(sizes), np.array([ask, sizes[0]]))
        assert curve.tolist() == [1, 0]


@given(hole_sizes(), st.lists(asks, min_size=1, max_size=6))
def test_the_curve_is_the_index_at_each_size(holes: list[int], sizes: list[int]) -> None:
    array = np.array(holes, np.int64)
    curve = metrics.unusable_curve(array, None, sum(holes), np.array(sizes))
    assert curve.tolist() == [metrics.unusable_index(array, size) for size in sizes]


def test_fifty_percent_rule() -> None:
    """4 holes beside 4 regions, 6 of 8 allocations left a remainder: 1.0 beside 0.375."""
    assert metrics.fifty_percent(4, 4, 6, 8) == metrics.FiftyPercent(4, 4, 1.0, 0.375)
    assert metrics.fifty_percent(1, 0, 0, 0) == metrics.FiftyPercent(1, 0, None, None)


@pytest.mark.parametrize(("k", "share"), [(1, 1 / 3), (0.25, 1 / 9), (2, 1 / 2)])
def test_unused_memory_rule(k: float, share: float) -> None:
    assert metrics.unused_share(k) == pytest.approx(share)


def test_unused_memory_of_a_pool() -> None:
    """Holes 50 and 30, one region of 100: k = 0.4, 0.4 / 2.4 beside 80 / 180."""
    found = metrics.unused_memory(pool([(50, 0, HOLE), (100, 40, 1), (30, 0, HOLE)]))
    assert (found.mean_hole, found.mean_live) == (40, 100)
    assert found.expected == pytest.approx(1 / 6)
    assert found.measured == pytest.approx(80 / 180)
    assert metrics.unused_memory(pool([(8, 0, HOLE)])) is None
    assert metrics.unused_memory(pool([(8, 8, 1)])) is None


@given(st.integers(1, 60), st.integers(1, 60))
def test_unused_share_is_that_of_half_as_many_holes(hole: int, region: int) -> None:
    """N regions and N / 2 holes of these mean sizes, as the rule supposes."""
    assert metrics.unused_share(hole / region) == pytest.approx((hole / 2) / (region + hole / 2))


def test_robson_bound_by_hand() -> None:
    """M = 768, n = 128: 768 * 4.5 - 127 = 3329 units. N(16, 2) = 23 is Knuth's."""
    assert metrics.robson_bound(768, 128) == 3329
    assert metrics.robson_bound(16, 2) == 23


@given(st.integers(1, 5000), st.integers(0, 12))
def test_robson_bound_holds_the_live_set(live: int, power: int) -> None:
    """Less than the live set can't hold it; equal sizes need no more; (3M - 1) // 2 for 1 and 2."""
    largest = 1 << min(power, live.bit_length() - 1)
    found = metrics.robson_bound(live, largest)
    assert live <= found <= live * (1 + power / 2) + 1
    assert metrics.robson_bound(live, 1) == live
    if live > 1:
        assert metrics.robson_bound(live, 2) == (3 * live - 1) // 2


def test_robson_bound_of_a_pool() -> None:
    """12,288 slots live, requests to 2048: 53,264 slots, 4.33 times the live set."""
    found = metrics.robson(pool([(2048, 2048, i) for i in range(6)] + [(512, 0, HOLE)]), 2048)
    assert (found.live, found.largest, found.units, found.slots) == (768, 128, 3329, 53_264)
    assert round(found.times, 2) == 4.33
    assert metrics.robson(pool([(512, 0, HOLE)]), 2048) is None


def test_no_request_of_robsons_is_larger_than_the_live_set() -> None:
    """With 3 units live nothing larger than 2 counts: 3 + 1.5 - 1, rounded up."""
    found = metrics.robson(pool([(40, 40, 1), (500, 0, HOLE)]), 2048)
    assert (found.live, found.largest, found.units) == (3, 2, 4)


def test_block_usage_hides_half_empty_blocks() -> None:
    """100 sequences of 17 tokens in 300 blocks of 16: 66.7 % of the blocks, 35.4 % of the slots."""
    rows = [row for i in range(100) for row in ((16, 16, i), (16, 1, i))]
    found = metrics.usage(pool(rows + [(16, 0, HOLE)] * 100, grain=16))
    assert (found.used_slots, found.slots, found.used_blocks, found.blocks) == (
        1700,
        4800,
        200,
        300,
    )
    assert round(100 * found.block_share, 1) == 66.7
    assert round(100 * found.slot_share, 1) == 35.4
    assert metrics.block_table_bytes(pool(rows, grain=16)) == 200 * 4


def test_full_blocks_show_one_usage_and_regions_have_no_blocks() -> None:
    full = metrics.usage(pool([(16, 16, 1)] * 25 + [(16, 0, HOLE)] * 5, grain=16))
    assert full.block_share == full.slot_share
    found = metrics.usage(F0)
    assert (found.block_share, found.slot_share) == (None, 0.5)
    assert metrics.block_table_bytes(F0) is None


@pytest.mark.parametrize(
    ("used", "free", "total", "difference"),
    [
        (644, 269_628, 270_331, -59),
        (2_864_304, 325_120, 3_185_200, 4224),
        (35_244, 0, 42_308, -7064),
        (0, 4096 - 5, 4096, -5),
        (0, 1388, 1000, 388),
    ],
)
def test_books_that_do_not_balance(used: int, free: int, total: int, difference: int) -> None:
    """A leak would be told when the pool has run dry, a double free never, or without its sign;
    and a gauge would leave its scale."""
    found = metrics.balance(used, free, total)
    assert (found.difference, found.balanced) == (difference, False)
    assert 0 <= metrics.usage_gauge(free, total) <= 1


def test_books_with_a_null_block_and_cached_ones() -> None:
    found = metrics.balance(30, 10, 50, cached=9, null=1)
    assert (found.counted, found.difference, found.balanced) == (50, 0, True)


def test_books_of_a_pool() -> None:
    """A block with two holders would count twice, cached ones twice, or a loss not at all."""
    shot = pool([(16, 16, 1), (16, 4, 2), (32, 0, HOLE)], grain=16)
    assert metrics.balance_of(shot) == metrics.Books(32, 32, 0, 0, 64)
    assert metrics.balance_of(shot, cached=16) == metrics.Books(32, 16, 16, 0, 64)
    shared = replace(
        shot,
        seq_held=np.array([16, 32]),
        columns=replace(shot.columns, refs=np.array([2, 1, 0])),
    )
    assert metrics.balance_of(shared).balanced
    lost = metrics.balance_of(replace(shot, seq_held=np.array([16, 0])))
    assert (lost.difference, lost.balanced) == (-16, False)


def test_buddyinfo_by_hand() -> None:
    """Holes at 3 of 5 slots, at 16 of 12, at 1024 of 1024: 1 + 4, 8 + 4, 1024."""
    rows = [(3, 3, 1), (5, 0, HOLE), (8, 8, 2), (12, 0, HOLE), (996, 996, 3), (1024, 0, HOLE)]
    found = metrics.buddyinfo(pool(rows))
    assert {1 << int(k): int(found[k]) for k in np.flatnonzero(found)} == {
        1: 1,
        4: 2,
        8: 1,
        1024: 1,
    }


def test_buddyinfo_counts_blocks() -> None:
    """Blocks 1 to 3 of 16 slots are free: a piece of 1 and one of 2 blocks."""
    shot = pool([(16, 16, 1), (16, 0, HOLE), (16, 0, HOLE), (16, 0, HOLE)], grain=16)
    assert metrics.buddyinfo(shot).tolist() == [1, 1, 0]
    assert metrics.buddyinfo(pool([(16, 16, 1), (16, 3, 2)], grain=16)).tolist() == [0, 0]


@given(st.lists(st.tuples(st.integers(1, 70), st.booleans()), min_size=1, max_size=25))
def test_buddyinfo_cuts_every_hole_into_aligned_pieces(rows: list[tuple[int, bool]]) -> None:
    """Free memory is missing from the table, or stands there in pieces no buddy could have."""
    shot = pool([(size, 0, HOLE if free else i) for i, (size, free) in enumerate(rows)])
    expected = np.zeros(len(metrics.buddyinfo(shot)), np.int64)
    for start, size in zip(*metrics.hole_runs(shot), strict=True):
        at, end = int(start), int(start + size)
        while at < end:
            order = (at & -at).bit_length() - 1 if at else len(expected) - 1
            while at + (1 << order) > end:
                order -= 1
            expected[order] += 1
            at += 1 << order
    assert metrics.buddyinfo(shot).tolist() == expected.tolist()
    assert int((expected << np.arange(len(expected))).sum()) == shot.free


def test_buddyinfo_of_many_holes() -> None:
    """6,000 holes of 3 slots at 1, 5, 9 ..: each is one of 1 slot and one of 2."""
    shot = pool([(1, 1, 1), (3, 0, HOLE)] * 6000)
    assert metrics.buddyinfo(shot).tolist()[:3] == [6000, 6000, 0]
    assert int(metrics.buddyinfo(shot).sum()) == 12_000


def test_time_weighted_by_hand() -> None:
    """10 for 1 step, 20 for 7 (a gap), 30 for 2: the mean is 21, the median 20."""
    found = metrics.time_weighted(np.array([0, 1, 8]), np.array([10, 20, 30]), until=10)
    assert (found.mean, found.median, found.p95) == (21.0, 20.0, 30.0)
    last = metrics.time_weighted(np.array([0, 1, 8]), np.array([10, 20, 30]))
    assert last.mean == pytest.approx((10 + 140 + 30) / 9)


def test_time_in_which_a_series_is_not_applicable_weighs_nothing() -> None:
    """n/a would count as 0, or the value before it would hold on."""
    found = metrics.time_weighted(np.array([0, 2, 9]), np.array([1.0, np.nan, 3.0]), until=10)
    assert (found.mean, found.median, found.p95) == (pytest.approx(5 / 3), 1.0, 3.0)
    never = metrics.TimeWeighted(None, None, None)
    assert metrics.time_weighted(np.array([0]), np.array([np.nan])) == never
    assert metrics.time_weighted(np.array([]), np.array([])) == never


@pytest.mark.parametrize("count", [1, 2, 19, 20, 21, 100])
def test_p95_is_the_smallest_value_that_95_percent_do_not_exceed(count: int) -> None:
    """Rounding would put it a value too high or too low."""
    values = np.arange(1, count + 1)
    found = metrics.time_weighted(values, values)
    assert found.p95 == -(-95 * count // 100)
    assert found.median == (count + 1) // 2


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(-50, 50)), min_size=1, max_size=30))
def test_time_weighted_is_each_value_repeated(held: list[tuple[int, int]]) -> None:
    """A value that held for long would weigh as much as one that held for a step."""
    spans, values = np.array(held).T
    steps = np.cumsum(spans) - spans
    found = metrics.time_weighted(steps, values, until=int(spans.sum()))
    every = np.sort(np.repeat(values, spans))
    assert found.mean == pytest.approx(every.mean())
    assert found.median == every[(len(every) - 1) // 2]
    assert found.p95 == every[-(-95 * len(every) // 100) - 1]


def test_a_series_runs_forward() -> None:
    with pytest.raises(AssertionError, match="steps must rise"):
        metrics.time_weighted(np.array([3, 3]), np.array([1, 2]))
