"""Formulas on pools drawn by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvviz import metrics
from kvviz.records import HOLE, Columns, Counters, Snapshot


def pool(
    rows: list[tuple[int, int, int]], grain: int = 1, life: dict[int, int] | None = None
) -> Snapshot:
    """Rows of (size, used, owner) in address order; `life` of each owner (default: its size)."""
    size, used, owner = (np.array(column) for column in zip(*rows, strict=True))
    start = np.concatenate([[0], np.cumsum(size)[:-1]])
    ids = np.array(sorted({o for o in owner.tolist() if o != HOLE}), np.int64)
    held = np.array([size[owner == i].sum() for i in ids], np.int64)
    written = np.array([used[owner == i].sum() for i in ids], np.int64)
    lives = np.array(
        [(life or {}).get(int(i), int(h)) for i, h in zip(ids, held, strict=True)], np.int64
    )
    free = int(size[owner == HOLE].sum())
    biggest = max([int(s) for s, o in zip(size, owner, strict=True) if o == HOLE], default=0)
    empty = np.zeros(0, np.int64)
    return Snapshot(
        0,
        0.0,
        int(size.sum()),
        grain,
        grain > 1,
        8,
        free if grain > 1 else biggest,
        Columns(start, size, used, owner, (owner != HOLE).astype(int)),
        ids,
        written,
        lives,
        held,
        np.ones_like(ids),
        np.zeros_like(ids),
        waiting_id=empty,
        waiting_need=empty,
        head=None,
        counters=Counters(),
    )


F0 = pool([row for i in range(4) for row in ((1024, 0, HOLE), (1024, 1024, i))])


def test_baseline() -> None:
    """8 x 1024, every other one freed: four holes of 1024, asked for 2048."""
    holes = metrics.holes(F0)
    assert holes.tolist() == [1024] * 4
    assert metrics.unusable_index(holes, 2048) == 1.0
    assert metrics.fragmentation_index(holes, 2048) == 0.25
    assert metrics.external_fragmentation(4096, 1024) == 0.75


@pytest.mark.parametrize(
    ("sizes", "request_size", "expected"),
    [
        ([256, 256], 400, -0.14),
        ([183, 183, 182], 2048, 0.578),
        ([128] * 32, 2048, 0.906),
        ([1] * 3328, 2, 0.4997),
        ([2048, 10], 2048, None),
        ([], 5, 0.0),
    ],
)
def test_linux_fragmentation_index(
    sizes: list[int], request_size: int, expected: float | None
) -> None:
    """1 - (1 + F / r) / H, n/a when some hole would do, 0 without holes."""
    found = metrics.fragmentation_index(np.array(sizes, np.int64), request_size)
    assert found == (expected if expected is None else pytest.approx(expected, abs=6e-4))


def test_unusable_index_of_a_full_pool() -> None:
    assert metrics.unusable_index(np.zeros(0, np.int64), 5) == 1.0
    assert metrics.external_fragmentation(0, 0) is None
    assert metrics.external_fragmentation(10, 10) == 0


def test_free_blocks_that_touch_are_one_hole() -> None:
    """free, free, a, free: holes of 2 and 1 blocks."""
    shot = pool([(16, 0, HOLE), (16, 0, HOLE), (16, 3, 1), (16, 0, HOLE)], grain=16)
    assert metrics.holes(shot).tolist() == [32, 16]


def test_how_many_fit() -> None:
    """Holes 300 and 100: of 100 three and one; paged with 25 free blocks of 16: ceil(100/16)=7."""
    holes = np.array([300, 100])
    sizes = np.array([100, 150, 301])
    assert metrics.how_many_fit(holes, None, 400, sizes).tolist() == [4, 2, 0]
    assert metrics.how_many_fit(holes, 16, 400, sizes).tolist() == [3, 2, 1]
    assert metrics.bound_fit(400, sizes).tolist() == [4, 2, 1]
    assert metrics.how_many_fit(np.zeros(0, np.int64), None, 0, sizes).tolist() == [0, 0, 0]


def test_breakdowns() -> None:
    """a: 100 held, 40 written, 70 at its end; holes 50 and 30; asked for 40.

    Paper: 40 written, 30 reserved, 30 internal, 30 external (the hole of 50 would do).
    Textbook: 40 written, 60 internal, 30 external (outside the largest hole).
    """
    shot = pool([(50, 0, HOLE), (100, 40, 1), (30, 0, HOLE)], life={1: 70})
    assert metrics.paper_breakdown(shot, 40) == metrics.Breakdown(40, 30, 30, 30, 180)
    assert metrics.textbook_breakdown(shot) == metrics.Breakdown(40, 0, 60, 30, 180)


def test_breakdown_paged() -> None:
    """Two blocks of 16, 20 written, 24 at its end: 8 of the tail are internal waste in the end."""
    shot = pool([(16, 16, 1), (16, 0, HOLE), (16, 4, 1)], grain=16, life={1: 24})
    assert metrics.paper_breakdown(shot, 16) == metrics.Breakdown(20, 4, 8, 0, 48)
    assert metrics.textbook_breakdown(shot) == metrics.Breakdown(20, 0, 12, 0, 48)


def test_histogram() -> None:
    """1, 2 and 3, 1024 fall into the bins from 1, 2, 1024."""
    edges, counts = metrics.hole_histogram(np.array([1, 2, 3, 1024]), 1024)
    assert edges.tolist() == [1 << i for i in range(11)]
    assert {int(e): int(c) for e, c in zip(edges, counts, strict=True) if c} == {
        1: 1,
        2: 2,
        1024: 1,
    }


def test_buffers_do_not_add_up() -> None:
    """Four buffers of 64, three of them free: a request of 1 or of 64 takes a whole one, and one
    of 65 none, though 192 slots are free. Blocks of 64 would serve one of 65, and of 128."""
    rows = [(64, 10, 0), (64, 0, HOLE), (64, 0, HOLE), (64, 0, HOLE)]
    blocks = pool(rows, grain=64)
    buffers = replace(blocks, single=True)
    sizes = np.array([1, 64, 65, 128, 192])
    holes = metrics.holes(buffers)
    assert holes.tolist() == [64, 64, 64]
    assert metrics.holes(blocks).tolist() == [192]
    assert metrics.how_many_fit(holes, 64, 192, sizes, single=True).tolist() == [3, 3, 0, 0, 0]
    assert metrics.how_many_fit(holes, 64, 192, sizes).tolist() == [3, 3, 1, 1, 1]
    assert metrics.unusable_curve(holes, 64, 192, sizes, single=True).tolist() == [0, 0, 1, 1, 1]
    assert metrics.paper_breakdown(buffers, 64).external == 0
    assert metrics.paper_breakdown(buffers, 65).external == 192
    assert metrics.paper_breakdown(blocks, 65).external == 0
