"""Reserved addresses: what the system really has in memory under them."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.caches import reserved
from kvviz.caches.reserved import OS_PAGE, ReservedRange
from kvviz.errors import CapacityError, KvvizError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's paging")


def test_reserving_takes_no_memory() -> None:
    """64 GiB of addresses, more than the machine has, take memory before they are touched."""
    range = ReservedRange(64 << 30)
    assert len(range.buffer) == range.total_bytes == 64 << 30
    range.touch(63 << 30, 1 << 20)
    range.close()


def test_memory_comes_with_a_touch_and_goes_when_given_back() -> None:
    """The kernel's count of exactly this range: by the page, and nothing for a neighbour."""
    mine, other = ReservedRange(1 << 20), ReservedRange(1 << 20)
    assert mine.resident_bytes() == 0
    mine.touch(8 * OS_PAGE, 16 * OS_PAGE)
    other.touch(0, 3 * OS_PAGE)
    assert (mine.resident_bytes(), other.resident_bytes()) == (16 * OS_PAGE, 3 * OS_PAGE)
    mine.give_back(8 * OS_PAGE, 4 * OS_PAGE)
    mine.give_back(100 * OS_PAGE, 2 * OS_PAGE)
    assert (mine.resident_bytes(), other.resident_bytes()) == (12 * OS_PAGE, 3 * OS_PAGE)
    mine.close()
    mine.close()
    assert (mine.resident_bytes(), other.resident_bytes()) == (0, 3 * OS_PAGE)
    other.close()


def test_reading_takes_no_memory() -> None:
    """A look at the whole pool commits it, or counts as if it had."""
    range = ReservedRange(1 << 20)
    assert not np.frombuffer(range.buffer, np.uint8).any()
    assert range.resident_bytes() == 0
    range.close()


def test_touch_keeps_what_is_there_and_giving_back_does_not() -> None:
    """A touch beside data overwrites it, or given back memory still holds the old tokens."""
    range = ReservedRange(4 * OS_PAGE)
    bytes = np.frombuffer(range.buffer, np.uint8)
    bytes[:] = 7
    range.touch(OS_PAGE - 5, OS_PAGE + 10)
    assert (bytes == 7).all()
    range.give_back(OS_PAGE, OS_PAGE)
    assert bytes.reshape(4, -1).max(axis=1).tolist() == [7, 0, 7, 7]
    range.close()


def test_no_huge_pages() -> None:
    """One byte takes 2 MiB where the system gives huge pages unasked."""
    range = ReservedRange(64 << 20)
    for offset in (0, 4 << 20, 8 << 20):
        range.touch(offset, 1)
    assert range.resident_bytes() == 3 * OS_PAGE
    range.close()


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 15), st.integers(0, 3 * 4096)), max_size=8))
def test_against_a_set_of_pages(calls: list[tuple[bool, int, int]]) -> None:
    """A page is forgotten at the edge of a touch, or too much goes back."""
    range_ = ReservedRange(20 * OS_PAGE)
    taken: set[int] = set()
    for touches, page, length in calls:
        if touches:
            offset = page * OS_PAGE + OS_PAGE // 2
            range_.touch(offset, length)
            if length:
                taken |= set(range(offset // OS_PAGE, (offset + length - 1) // OS_PAGE + 1))
        else:
            range_.give_back(page * OS_PAGE, length // OS_PAGE * OS_PAGE)
            taken -= set(range(page, page + length // OS_PAGE))
        assert range_.resident_bytes() == len(taken) * OS_PAGE
    range_.close()


def test_closing_gives_memory_back_under_a_living_array() -> None:
    """A view that someone still holds keeps a closed pool's memory, or stops the close."""
    range = ReservedRange(1 << 20)
    kept = np.frombuffer(range.buffer, np.uint8)
    kept[:] = 1
    range.close()
    assert not kept.any()


@pytest.mark.parametrize("call", [
    lambda r: r.touch(OS_PAGE, 8 * OS_PAGE),
    lambda r: r.give_back(-OS_PAGE, OS_PAGE),
    lambda r: r.give_back(100, OS_PAGE),
    lambda r: r.give_back(0, 100),
])  # fmt: skip
def test_outside_or_between_pages_is_an_assert(call) -> None:
    """Memory of the process beside the range is given away."""
    range = ReservedRange(8 * OS_PAGE)
    with pytest.raises(AssertionError, match="leaves the range|not in whole pages"):
        call(range)
    range.close()


def test_total_is_whole_pages() -> None:
    """The last slots of a pool have no address."""
    range = ReservedRange(3 * OS_PAGE + 1, page_bytes=2 * OS_PAGE)
    assert range.total_bytes == 4 * OS_PAGE
    range.close()


def test_no_such_range_says_what_to_lower() -> None:
    """The user sees the system's words for addresses that no process has."""
    with pytest.raises(CapacityError, match=r"GiB of addresses .* Lower memory.context"):
        ReservedRange(1 << 60)


def test_page_that_the_system_does_not_have() -> None:
    """Half a page of the system is given back with the other half."""
    with pytest.raises(KvvizError, match="no multiple of the system's"):
        ReservedRange(1 << 20, page_bytes=OS_PAGE // 2)


def test_other_systems_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """An AttributeError instead of a sentence."""
    monkeypatch.setattr(reserved.sys, "platform", "darwin")
    with pytest.raises(KvvizError, match=r"needs Linux; this is darwin\. Choose"):
        ReservedRange(1 << 20)


def test_hidden_count_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox without /proc ends the page with a stack trace."""
    range = ReservedRange(1 << 20)
    monkeypatch.setattr(reserved, "_PAGEMAP", "/nowhere/pagemap")
    with pytest.raises(KvvizError, match="can't be counted here"):
        range.resident_bytes()
    range.close()
