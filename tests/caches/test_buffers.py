"""Split buffers by hand: one request each, whole, and what is not written of it is wasted."""

from __future__ import annotations

import pytest

from kvviz.caches.buffers import BuffersLayout
from kvviz.records import ADMITTED, CAPACITY, HOLE, NEVER, RESERVED, Freed, Verdict
from tests.helpers import layout, request


@pytest.fixture
def buffers() -> BuffersLayout:
    """Three buffers of 33 slots, and one slot behind them."""
    return layout(
        "cells",
        {
            "memory.slots": 100,
            "memory.context": 64,
            "cells.mode": "split",
            "cells.buffers": 3,
        },
    )


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
