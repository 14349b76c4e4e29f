"""Halving a batch by hand, and against a search slot by slot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.caches.halving import Placement, place_batch
from kvviz.records import HOLE, Region
from tests.helpers import runs
from tests.strategies import regions, sizes

PIECES = [Region(0, 300), Region(310, 100), Region(420, 50)]  # 450 cells between live ones


def remaining(holes: list[Region], taken: list[Region]) -> list[Region]:
    """The holes without what was taken from them, found slot by slot."""
    owner = np.full(1000, 1)
    for region in holes:
        owner[region.start : region.end] = HOLE
    for region in taken:
        assert (owner[region.start : region.end] == HOLE).all(), f"{region} is not free"
        owner[region.start : region.end] = 2
    return runs(owner.tolist())


def slow(holes: list[Region], count: int, batch: int) -> Placement:
    """Every attempt looks at every slot again."""
    taken: list[Region] = []
    attempts = 0
    while count and batch:
        attempts += 1
        part = min(batch, count)
        start = next((h.start for h in remaining(holes, taken) if h.size >= part), None)
        if start is None:
            batch //= 2
        else:
            taken.append(Region(start, part))
            count -= part
    return Placement([region.size for region in taken], attempts, taken, count)


def test_prompt_of_440_takes_seven_parts() -> None:
    """ggml-org/llama.cpp#3380: enough is free, in pieces, and the prompt is decoded in seven."""
    placed = place_batch(PIECES, 440, 512)
    assert placed.parts == [256, 64, 32, 32, 32, 16, 8]
    assert (placed.attempts, placed.left) == (12, 0)
    assert placed.regions[:3] == [Region(0, 256), Region(310, 64), Region(256, 32)]
    assert sorted(hole.size for hole in remaining(PIECES, placed.regions)) == [2, 4, 4]


def test_one_hole_takes_one_part() -> None:
    """The same free memory in one piece costs more than one pass."""
    assert place_batch([Region(7, 450)], 440, 512) == ([440], 1, [Region(7, 440)], 0)


def test_prompt_of_460_fails_at_a_batch_of_one() -> None:
    """The search goes on for ever, or gives up while cells are left."""
    placed = place_batch(PIECES, 460, 512)
    assert (placed.attempts, placed.left, sum(placed.parts)) == (20, 10, 450)
    assert remaining(PIECES, placed.regions) == []


@pytest.mark.parametrize(
    ("holes", "count", "batch", "parts", "attempts"),
    [
        ([(0, 9)], 9, 4, [4, 4, 1], 3),  # a part is no larger than the batch
        ([(0, 2), (5, 4)], 4, 4, [4], 1),
        ([(0, 2), (5, 2)], 4, 7, [1, 1, 1, 1], 6),  # 7, 3, 1: a batch need not be even
        ([(0, 1), (2, 1), (4, 1), (6, 1)], 3, 2, [1, 1, 1], 4),
        ([(0, 4)], 0, 4, [], 0),
        ([], 3, 4, [], 3),
    ],
)
def test_parts_by_hand(
    holes: list[tuple[int, int]], count: int, batch: int, parts: list[int], attempts: int
) -> None:
    """A part is larger than the batch, or the batch is raised or halved when it need not be."""
    placed = place_batch([Region(*hole) for hole in holes], count, batch)
    assert (placed.parts, placed.attempts) == (parts, attempts)


@given(regions(), st.integers(0, 80), sizes(64))
def test_parts_against_the_slow_search(holes: list[Region], count: int, batch: int) -> None:
    """Parts overlap, lie outside the holes, pass by a lower hole or leave cells unused, or the
    caller's holes change."""
    merged = remaining(holes, [])
    given = np.array(merged, np.int64).reshape(-1, 2)
    placed = place_batch(given, count, batch)
    assert placed == slow(merged, count, batch)
    assert placed.left == max(0, count - sum(hole.size for hole in holes))
    assert given.tolist() == [list(hole) for hole in merged]
