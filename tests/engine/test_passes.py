"""A batch that is placed in parts runs in as many passes, and nobody gets other tokens for it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.build import Backend
from kvviz.caches.layout import Journal
from kvviz.engine.engine import Engine
from kvviz.engine.forward import Chunk, DryForward, cut
from kvviz.records import Freed
from tests.helpers import engine, lanes, request, run_steps, small


def chunk(number: int, start: int, count: int, samples: bool = True) -> Chunk:
    return Chunk(request(number, 50, 1), start, count, samples)


def test_chunk_is_cut_where_the_part_ends() -> None:
    """A token is written twice or never, or the first half of a chunk yields a token."""
    batch = [chunk(1, 9, 1), chunk(2, 0, 6, False), chunk(3, 4, 2)]
    assert cut(batch, [4, 2, 3]) == [
        [chunk(1, 9, 1), chunk(2, 0, 3, False)],
        [chunk(2, 3, 2, False)],
        [chunk(2, 5, 1, False), chunk(3, 4, 2)],
    ]
    assert cut([chunk(3, 4, 2)], [1, 1]) == [[chunk(3, 4, 1, False)], [chunk(3, 5, 1)]]
    assert cut([], []) == []


def test_parts_that_do_not_cover_the_batch() -> None:
    """A layout that placed fewer tokens than are written loses the last ones unseen."""
    with pytest.raises(AssertionError, match=r"\[2, 1\] do not cover"):
        cut([chunk(1, 0, 4)], [2, 1])


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=6), st.data())
def test_parts_are_the_batch(sizes: list[tuple[int, bool]], data: st.DataObject) -> None:
    """The order of the tokens changes, or that of the rows that sample."""
    batch = [chunk(i, 7 * i, count, samples) for i, (count, samples) in enumerate(sizes)]
    total, parts = sum(c.length for c in batch), []
    while sum(parts) < total:
        parts.append(data.draw(st.integers(1, total - sum(parts))))
    pieces = cut(batch, parts)
    assert [sum(c.length for c in piece) for piece in pieces] == parts
    assert _tokens([c for piece in pieces for c in piece]) == _tokens(batch)


def _tokens(batch: list[Chunk]) -> list[tuple[int, int, bool]]:
    """(request, position, does it sample?) of each token."""
    return [
        (c.request.id, c.start + i, c.samples and i == c.length - 1)
        for c in batch
        for i in range(c.length)
    ]


class Watching(DryForward):
    """Keeps every call; its tokens are the ids of the requests that sample."""

    def __init__(self) -> None:
        self.calls: list[tuple[list[tuple[int, int, int]], Journal]] = []

    def __call__(self, batch: list[Chunk], journal: Journal) -> np.ndarray:
        self.calls.append(([(c.request.id, c.start, c.length) for c in batch], journal))
        return np.array([c.request.id for c in batch if c.samples], np.int64)


def torn(watching: Watching, name: str = "cells", slots: int = 64) -> Engine:
    """After a step request 1 has finished and left a hole of 10 cells between 0 and 2."""
    run = {"memory.slots": slots, "memory.context": 64, "engine.check_every": 0}
    lane = engine(name, run, watching)
    lane.submit([request(0, 20, 9), request(1, 10, 1), request(2, 25, 9)])
    lane.step()
    return lane


def test_step_in_parts() -> None:
    """64 cells: 0-19, a hole of 10, 30-54, a hole of 9. Twelve tokens for 0, 2 and a new prompt
    of ten find no place together: 12 of a batch of 256 fail, halved to 8 they fit twice."""
    watching = Watching()
    lane = torn(watching)
    assert lane.counters().passes == 1
    lane.submit([request(3, 10, 5)])
    lane.step()
    assert watching.calls[1:] == [
        ([(0, 20, 1), (2, 25, 1), (3, 0, 6)], [Freed(20, 10)]),
        ([(3, 6, 4)], []),
    ]
    assert lane.counters().passes == 3
    assert [s.generated for s in lane.scheduler.running] == [2, 2, 1]
    assert lane.layout.slots(3).tolist() == [*range(22, 28), *range(55, 59)]


@pytest.mark.parametrize("name", ["contiguous", "paged"])
def test_a_layout_that_does_not_place_runs_once_a_step(name: str) -> None:
    """Passes count calls without rows, or leave out lanes that never split."""
    watching = Watching()
    lane = torn(watching, name, slots=256)
    run_steps(lane, 30)
    assert lane.idle
    assert len(watching.calls) == 31
    assert lane.counters().passes == sum(bool(rows) for rows, _ in watching.calls) == 9


@pytest.mark.parametrize("lane", ["cells", "scattered", "split"])
def test_cells_change_no_answer(lane: str, backend: Backend) -> None:
    """A chunk that is cut reads K and V that the pass before it did not write, or the map and
    the tensors part."""
    run = small({"engine.check_every": 5, "mix.rate": 0.7})
    with lanes(run, backend, ("contiguous", "paged", lane)) as built:
        run_steps(built, 160)
        mine = built.engines[lane]
        passes, steps = mine.counters().passes, mine.recorder.series().running
        assert built.comparison.compared == built.comparison.equal > 15
        assert (mine.checks_made, mine.checks_failed) == (32, 0)
        if lane == "cells":
            assert passes > len(steps) + 20
        else:
            assert passes <= len(steps)
