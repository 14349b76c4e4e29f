"""Formulas against their slow definitions, on random holes and on the pools of real runs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvviz import metrics
from kvviz.records import RESERVED, Snapshot
from tests.helpers import lanes, run_steps, runs, small
from tests.strategies import hole_sizes

asks = st.integers(1, 500)


def fits_one_by_one(holes: list[int], request: int) -> int:
    """Place requests of one size until none fits."""
    left, placed = list(holes), 0
    while (index := next((i for i, h in enumerate(left) if h >= request), -1)) >= 0:
        left[index] -= request
        placed += 1
    return placed


@given(hole_sizes(), asks)
def test_how_many_fit_is_what_placing_them_gives(holes: list[int], request: int) -> None:
    """The capacity view promises requests that find no place."""
    sizes, free = np.array(holes, np.int64), sum(holes)
    found = int(metrics.how_many_fit(sizes, None, free, np.array([request]))[0])
    assert found == fits_one_by_one(holes, request)
    assert found <= int(metrics.bound_fit(free, np.array([request]))[0]) == free // request


@given(st.integers(0, 40), st.integers(1, 32), asks)
def test_how_many_fit_in_blocks(blocks: int, size: int, request: int) -> None:
    """A request of r takes ceil(r / B) whole blocks, wherever they are; with blocks of one slot
    this is the bound itself."""
    free = blocks * size
    found = int(metrics.how_many_fit(np.array([free]), size, free, np.array([request]))[0])
    assert found == fits_one_by_one([blocks], -(-request // size))
    if size == 1:
        assert found == free // request


@given(hole_sizes(), asks)
def test_unusable_index_is_the_share_left_over(holes: list[int], request: int) -> None:
    """(what stays free once as many as fit are placed) / F, 1 when nothing is free."""
    found = metrics.unusable_index(np.array(holes, np.int64), request)
    left = sum(holes) - request * fits_one_by_one(holes, request)
    assert found == (left / sum(holes) if holes else 1.0)
    assert 0 <= found <= 1
    assert (found == 1) == (max(holes, default=0) < request)


@given(hole_sizes(), asks)
def test_fragmentation_index_is_n_a_when_one_fits(holes: list[int], request: int) -> None:
    """The gauge blames fragmentation for a request that would be admitted, or passes 1."""
    found = metrics.fragmentation_index(np.array(holes, np.int64), request)
    assert (found is None) == (max(holes, default=0) >= request)
    if found is not None:
        assert found < 1
        assert found == (1 - (1 + sum(holes) / request) / len(holes) if holes else 0.0)


@given(hole_sizes())
def test_external_fragmentation_bounds(holes: list[int]) -> None:
    """One hole is no fragmentation; no free slot is not applicable."""
    found = metrics.external_fragmentation(sum(holes), max(holes, default=0))
    assert (found is None) == (not holes)
    if holes:
        assert 0 <= found < 1
        assert (found == 0) == (len(holes) == 1)


@given(st.lists(st.integers(1, 1 << 22), max_size=40))
def test_histogram_counts_every_hole_once(holes: list[int]) -> None:
    """A hole at the edge of a bin falls into its neighbour, or the largest into none."""
    top = max(holes, default=1)
    edges, counts = metrics.hole_histogram(np.array(holes, np.int64), top)
    assert len(edges) == len(counts) == top.bit_length()
    for low, count in zip(edges.tolist(), counts.tolist(), strict=True):
        assert count == sum(low <= h < 2 * low for h in holes)


@pytest.mark.parametrize("power", range(1, 23))
def test_histogram_at_powers_of_two(power: int) -> None:
    """2^k opens its bin and 2^k - 1 closes the one below."""
    _, counts = metrics.hole_histogram(np.array([2**power, 2**power - 1]), 2**power)
    assert (counts[power], counts[power - 1], counts.sum()) == (1, 1, 2)


@pytest.mark.parametrize("block", [1, 3, 16])
@pytest.mark.parametrize("reservation", ["oracle", "max", "exact"])
def test_pools_of_a_real_run(block: int, reservation: str) -> None:
    """A number on the page contradicts the map beside it.

    At every step of a dry run: holes are the maximal free runs; some request of r fits exactly
    when r would be admitted; both breakdowns' parts are what they say and fill the pool.
    """
    run = small({"dry": True, "paged.block_size": block, "contiguous.reservation": reservation})
    with lanes(run) as built:
        run_steps(built, 20)
        for _ in range(60):
            built.step()
            for engine in built.engines.values():
                shot = engine.snapshot()
                owners = np.repeat(shot.columns.owner, shot.columns.size).tolist()
                sizes = metrics.holes(shot)
                assert sizes.tolist() == [h.size for h in runs(owners)]
                ask = np.arange(1, 129, 9)
                fits = metrics.how_many_fit(sizes, shot.block, engine.layout.free, ask)
                assert (fits > 0).tolist() == [engine.layout.fits(int(a)) for a in ask]
                check_breakdowns(shot, ask)


def check_breakdowns(shot: Snapshot, ask: np.ndarray) -> None:
    held, written = int(shot.seq_held.sum()), int(shot.seq_used.sum())
    rest = int(shot.columns.size[shot.columns.owner == RESERVED].sum())
    for request in ask.tolist():
        paper = metrics.paper_breakdown(shot, request)
        parts = paper.written, paper.reserved, paper.internal, paper.external
        assert min(parts) >= 0
        assert paper.written + paper.reserved + paper.internal == held
        assert paper.external <= shot.free
        assert paper.total == shot.capacity == held + shot.free + rest
    book = metrics.textbook_breakdown(shot)
    assert (book.written, book.internal, book.reserved) == (written, held - written, 0)
    assert book.external == (0 if shot.paged else shot.free - shot.admissible)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_summary(values: list[float]) -> None:
    """Mean and p95 lie between the smallest and the largest value, rounded to 4 digits."""
    found = metrics.summary(np.array(values))
    for number in found.values():
        assert min(values) - 1e-4 <= number <= max(values) + 1e-4
    assert metrics.summary(np.array([])) == {"mean": None, "p95": None}


@given(hole_sizes(), asks)
def test_more_to_ask_for_never_fits_more_often(holes: list[int], request: int) -> None:
    """The curve of how many fit rises somewhere."""
    assume(holes)
    sizes = np.arange(request, request + 20)
    curve = metrics.how_many_fit(np.array(holes), None, sum(holes), sizes).tolist()
    assert all(a >= b for a, b in pairwise(curve))
