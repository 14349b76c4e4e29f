"""The paged lane by hand: block tables, tails, and slots that no block covers."""

from __future__ import annotations

import pytest

from kvviz.caches.paged import PagedLayout
from kvviz.records import ADMITTED, CAPACITY, HOLE, NEVER, Freed, Verdict
from tests.helpers import config, request


def paged(block: int, slots: int = 64) -> PagedLayout:
    return PagedLayout(
        config({"memory.slots": slots, "memory.context": 16, "paged.block_size": block})
    )


def test_block_table_puts_scattered_blocks_in_order() -> None:
    """A request grows over blocks that others left: 7 tokens in blocks 0, 1 of 4 slots, then
    6 more that need block 1's last slot and two more blocks, the one freed last first."""
    layout = paged(4)
    for number, prompt in enumerate((7, 4, 4)):
        layout.admit(request(number, prompt, 30), prompt)
        layout.append(number, prompt)
    layout.release(1)
    assert layout.append(0, 6) == Verdict(ADMITTED, 8, 44, 44)
    assert layout.block_table(0).tolist() == [0, 1, 2, 4]
    assert layout.slots(0).tolist() == [*range(12), 16]
    assert layout.take_journal() == [Freed(8, 4)]


def test_block_is_taken_at_the_boundary_only() -> None:
    """The tail of a block is not used before another block is taken."""
    layout = paged(4)
    layout.admit(request(0, 1, 20), 1)
    held = []
    for _ in range(9):
        layout.append(0, 1)
        held.append(layout.held(0))
    assert held == [4, 4, 4, 4, 8, 8, 8, 8, 12]


def test_never_fragmented() -> None:
    """Every second block is free, and a request of all of them is admitted."""
    layout = paged(4)
    for number in range(16):
        layout.admit(request(number, 4, 1), 4)
    for number in range(0, 16, 2):
        layout.release(number)
    assert layout.admit(request(99, 32, 1), 32) == Verdict(ADMITTED, 32, 32, 32)
    assert layout.admit(request(100, 1, 1), 1) == Verdict(CAPACITY, 4, 0, 0)


def test_rest_behind_the_last_block() -> None:
    """70 slots in blocks of 16: six slots are covered by none. They are a hole of the map, no
    free memory, and a request that would need them never fits."""
    layout = paged(16, slots=70)
    columns = layout.columns()
    assert (layout.capacity, layout.usable, layout.free) == (70, 64, 64)
    assert (columns.start[-1], columns.size[-1], columns.owner[-1]) == (64, 6, HOLE)
    assert layout.question(request(0, 60, 6), 60) == Verdict(NEVER, 80, 64, 64)
    assert layout.question(request(0, 60, 5), 60) == Verdict(ADMITTED, 64, 64, 64)


def test_life_beyond_the_pool_is_never() -> None:
    """A request that starts small and can't end in this pool would be preempted for ever."""
    assert paged(16).question(request(0, 4, 62), 4) == Verdict(NEVER, 80, 64, 64)


@pytest.mark.parametrize("count", [16, 17, 40])
def test_more_requests_than_lines(count: int) -> None:
    """The address table grows past its first 16 lines and mixes up who has which."""
    layout = paged(2, slots=256)
    for number in range(count):
        layout.admit(request(number, 3, 30), 3)
        layout.append(number, 3)
    for number in range(0, count, 3):
        layout.release(number)
    live = [number for number in range(count) if number % 3]
    slots = [slot for number in live for slot in layout.slots(number).tolist()]
    assert len(slots) == len(set(slots)) == 3 * len(live)
    assert len({layout.table.row(number) for number in live}) == len(live)
    layout.check()


def test_longer_than_the_first_width() -> None:
    """The address table starts 16 pieces wide; a longer request keeps its first blocks."""
    layout = paged(1)
    layout.admit(request(0, 10, 50), 10)
    for _ in range(50):
        layout.append(0, 1)
    assert sorted(layout.slots(0).tolist()) == list(range(50))
    assert layout.slots(0).tolist()[:10] == list(range(10))
