"""Split buffers by hand: one request each, whole, and what is not written of it is wasted."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.caches.buffers import BuffersLayout
from kvviz.metrics import holes, how_many_fit
from kvviz.records import ADMITTED, CAPACITY, HOLE, NEVER, RESERVED, Freed, Verdict
from kvviz.views.classical import indices
from kvviz.views.number import Question
from tests.helpers import engine, layout, request
from tests.scenario.support import told

SETTINGS = {
    "memory.slots": 100,
    "memory.context": 64,
    "cells.mode": "split",
    "cells.buffers": 3,
}


@pytest.fixture
def buffers() -> BuffersLayout:
    """Three buffers of 33 slots, and one slot behind them."""
    return layout("cells", SETTINGS)


def test_request_takes_a_whole_buffer(buffers: BuffersLayout) -> None:
    """A request of 10 slots holds less than a buffer, or the map hides what it wastes."""
    assert buffers.admit(request(5, 4, 7), 4) == Verdict(ADMITTED, 33, 99, 33)
    assert buffers.append(5, 4) == Verdict(ADMITTED, 4, 66, 33)
    columns = buffers.columns()
    assert (buffers.held(5), buffers.written(5), buffers.slots(5)) == (33, 4, slice(0, 4))
    assert columns.start.tolist() == [0, 33, 66, 99]
    assert columns.size.tolist() == [33, 33, 33, 1]
    assert columns.used.tolist() == [4, 0, 0, 0]
    assert columns.owner.tolist() == [5, HOLE, HOLE, RESERVED]


def test_fourth_request_waits_for_a_buffer(buffers: BuffersLayout) -> None:
    """90 slots are unwritten, and still nobody else gets one; then the freed buffer is used."""
    for number in range(3):
        buffers.admit(request(number, 3, 1), 3)
        buffers.append(number, 3)
    assert buffers.admit(request(3, 1, 1), 1) == Verdict(CAPACITY, 33, 0, 0)
    assert not buffers.holds(3) and not buffers.fits(1)
    buffers.release(1)
    assert buffers.take_journal() == [Freed(33, 33)]
    assert buffers.admit(request(3, 1, 1), 1) == Verdict(ADMITTED, 33, 33, 33)
    buffers.append(3, 1)
    assert buffers.slots(3) == slice(33, 34)


def test_life_must_fit_in_one_buffer(buffers: BuffersLayout) -> None:
    """Three free buffers add up for a request that needs 34 slots, or one of 33 is refused."""
    assert buffers.admit(request(0, 30, 5), 30) == Verdict(NEVER, 34, 99, 33)
    assert buffers.admit(request(1, 30, 4), 30).admitted
    assert (buffers.fits(33), buffers.fits(34)) == (True, False)
    assert buffers.append(1, 33).admitted
    assert buffers.append(1, 1) == Verdict(NEVER, 34, 66, 33)
    assert buffers.written(1) == 33


def test_lost_buffer_is_told_at_once(buffers: BuffersLayout) -> None:
    """A buffer that is neither free nor taken goes unseen until the pool is empty."""
    buffers.admit(request(0, 3, 1), 3)
    buffers.check()
    buffers._free.pop()
    with pytest.raises(AssertionError, match=r"accounting is broken: 1 buffers taken \+ 1 free"):
        buffers.check()


def test_page_counts_a_buffer_for_each_request() -> None:
    """The curve says that two free buffers serve a request of one and a half."""
    lane = engine("cells", SETTINGS)
    lane.submit([request(0, 10, 5)])
    lane.step()
    shot = lane.snapshot()
    assert (shot.single, shot.grain, shot.free, shot.admissible) == (True, 33, 66, 33)
    sizes = np.array([1, 33, 34, 66])
    assert how_many_fit(holes(shot), shot.block, shot.free, sizes, single=True).tolist() == [
        sum(lane.layout.fits(size) for _ in range(shot.free // shot.grain))
        for size in sizes.tolist()
    ]
    number = next(n for n in indices(Question(shot, 34, {})) if "fit now" in n.name)
    assert number.value == "0 of 1"


def test_longest_request_of_a_start_is_one_buffer() -> None:
    """At the start a length of two buffers is allowed, and no request of it ever served."""
    split = {"kind": "cells", "mode": "split", "buffers": 4}
    check = told(capacity=256, layout=split, max_len=65, ops=[])
    assert (check["start"]["ok"], check["start"]["suggested_max_len"]) == (False, 64)
    assert check["start"]["concurrency"] == round(64 / 65, 4)
    ask = told(capacity=256, layout=split, ops=[["ask", 65]])["ops"][0]
    assert (ask["verdict"], ask["largest_hole"], ask["unusable_index"]) == ("never", 64, 1.0)
    held = told(capacity=256, layout=split, max_len=64, ops=[["ask", 64]])
    assert (held["start"]["ok"], held["start"]["concurrency"]) == (True, 4.0)
    assert (held["ops"][0]["holes"], held["ops"][0]["unusable_index"]) == (4, 0.0)
