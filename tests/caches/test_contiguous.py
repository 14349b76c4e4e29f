"""The contiguous lane by hand: how a request grows, and what each way costs."""

from __future__ import annotations

import pickle

import numpy as np

from kvviz.caches.contiguous import ContiguousLayout
from kvviz.records import ADMITTED, CAPACITY, FRAGMENTED, NEVER, Freed, Move, Verdict
from tests.helpers import config, indices, request


def growing(compaction: str = "off", slots: int = 64) -> ContiguousLayout:
    """A layout that reserves nothing ahead."""
    return ContiguousLayout(
        config(
            {
                "memory.slots": slots,
                "memory.context": slots,
                "contiguous.reservation": "exact",
                "contiguous.compaction": compaction,
            }
        )
    )


def fill(layout: ContiguousLayout, *sizes: int) -> None:
    """Requests 0, 1, ... with these prompts, all written, each of them able to grow to 60."""
    for number, size in enumerate(sizes):
        assert layout.admit(request(number, size, 61 - size), size).admitted
        assert layout.append(number, size).admitted
    layout.take_journal()


def test_grows_in_place() -> None:
    """A hole right behind is enough, and nothing is copied.

    before |00000000|11111111|....  append 3 to 1  after |00000000|11111111111|.
    """
    layout = growing()
    fill(layout, 8, 8)
    assert layout.append(1, 3) == Verdict(ADMITTED, 3, 45, 45)
    assert layout.slots(1) == slice(8, 19)
    assert layout.take_journal() == []


def test_moves_to_a_hole() -> None:
    """With a neighbour behind it, the request moves: its 8 written slots are copied first, its
    old region is free after that, and the new tokens come behind."""
    layout = growing()
    fill(layout, 8, 8)
    assert layout.append(0, 2) == Verdict(ADMITTED, 2, 46, 38, moved=8)
    assert layout.slots(0) == slice(16, 26)
    assert layout.take_journal() == [Move(0, 16, 8, 0), Freed(0, 8)]


def test_refused_with_memory_free() -> None:
    """|0 x 30|1 x 30|....|: 0 needs one slot, four are free, none behind it: fragmented, and
    everything stays where it is."""
    layout = growing()
    fill(layout, 30, 30)
    assert layout.append(0, 1) == Verdict(FRAGMENTED, 1, 4, 4)
    assert (layout.slots(0), layout.slots(1)) == (slice(0, 30), slice(30, 60))
    assert layout.take_journal() == []


def test_refused_without_memory() -> None:
    """|0 x 32|1 x 32|: no slot is free, so this is capacity and no fragmentation."""
    layout = growing()
    fill(layout, 32, 28)
    layout.append(1, 4)
    assert layout.append(0, 1) == Verdict(CAPACITY, 33, 0, 0)


def test_growth_slides_the_last_one_down() -> None:
    """|0 x 20|1 x 20|2 x 20|....|, 1 leaves: 2 grows by 10 once it has slid down 20 slots."""
    layout = growing("on_refusal")
    fill(layout, 20, 20, 20)
    layout.release(1)
    layout.take_journal()
    assert layout.append(2, 10) == Verdict(ADMITTED, 10, 14, 14, moved=20)
    assert layout.slots(2) == slice(20, 50)
    assert layout.take_journal() == [Move(40, 20, 20, 2), Freed(40, 20)]


def test_growth_slides_and_then_moves() -> None:
    """0 has a neighbour behind it even after the slide: it moves into the hole at the end.

    |0 x 10|1 x 20|2 x 12|3 x 10|..12|, 2 leaves. 0 wants 5 more: no hole of 15, 24 free.
    """
    layout = growing("on_refusal")
    fill(layout, 10, 20, 12, 10)
    layout.release(2)
    layout.take_journal()
    assert layout.append(0, 5) == Verdict(ADMITTED, 5, 19, 10, moved=10 + 10)
    assert layout.slots(0) == slice(40, 55)
    moves = [entry for entry in layout.take_journal() if isinstance(entry, Move)]
    assert moves == [Move(42, 30, 10, 3), Move(0, 40, 10, 0)]


def test_life_beyond_the_pool_is_never() -> None:
    """A request that starts small and can't end in this pool would be preempted for ever."""
    layout = growing()
    assert layout.admit(request(0, 5, 61), 5) == Verdict(NEVER, 65, 64, 64)
    assert layout.admit(request(0, 5, 60), 5).admitted


def test_compaction_is_paid_for_written_slots_only() -> None:
    """A slide copies reserved slots that hold nothing."""
    layout = ContiguousLayout(
        config({"memory.slots": 64, "memory.context": 64, "contiguous.compaction": "on_refusal"})
    )
    for number in range(3):
        layout.admit(request(number, 10, 11), 10)
    layout.append(1, 10)
    layout.append(2, 7)
    layout.release(0)
    assert layout.admit(request(3, 20, 5), 20) == Verdict(ADMITTED, 24, 24, 20, moved=17)
    assert layout.slots(1) == slice(0, 10)
    assert (layout.held(1), layout.written(2), layout.slots(3)) == (20, 7, slice(40, 40))


def test_refused_growth_changes_nothing() -> None:
    """|0 x 30|1 x 8|2 x 20|...6|, 1 leaves: 14 free, 0 can't grow by 10 even after a slide,
    as it needs 40 in one hole and is not the last one. So nothing should move."""
    layout = growing("on_refusal")
    fill(layout, 30, 8, 20)
    layout.release(1)
    layout.take_journal()
    verdict = layout.append(0, 10)
    assert not verdict.admitted
    assert (verdict.moved, layout.take_journal()) == (0, [])
    assert indices(layout, 2).tolist() == list(range(38, 58))


def rounding(allocator: str, slots: int, compaction: str) -> ContiguousLayout:
    return ContiguousLayout(
        config(
            {
                "memory.slots": slots,
                "memory.context": slots,
                "contiguous.allocator": allocator,
                "contiguous.reservation": "exact",
                "contiguous.compaction": compaction,
            }
        )
    )


def test_slide_that_opens_no_hole_that_is_found() -> None:
    """|0 x 10|1 x 15|...71|: TLSF finds no 71 slots in a hole of 71, for 72 is the next class.
    A slide can't change that, so the request is refused, and so is growth to that size."""
    layout = rounding("tlsf", 96, "on_refusal")
    fill(layout, 10, 15)
    assert layout.admit(request(2, 71, 1), 71) == Verdict(FRAGMENTED, 71, 71, 70)
    assert layout.append(0, 61) == Verdict(CAPACITY, 71, 71, 70)
    assert (layout.take_journal(), layout.held(0)) == ([], 10)
    layout.check()


def test_growth_to_the_next_power_of_two() -> None:
    """|0 x 32|1 x 16|..16|: slot 33 of request 0 costs a buddy of 32, and 16 are free: lack of
    memory. Slot 17 of request 1 costs the 16 that are there; they do not help request 0 when
    its own buddy is taken."""
    layout = rounding("buddy", 64, "off")
    fill(layout, 32, 16)
    assert layout.append(0, 1) == Verdict(CAPACITY, 64, 16, 16)
    assert layout.append(1, 1) == Verdict(ADMITTED, 1, 0, 0)
    crossed = rounding("buddy", 64, "off")
    fill(crossed, 16, 16, 16, 16)
    crossed.release(2)
    assert crossed.append(0, 1) == Verdict(FRAGMENTED, 16, 16, 16)


def test_more_requests_than_the_table_began_with() -> None:
    """The rows grow with the table, in the middle of a run, and keep what they held."""
    layout = growing(slots=256)
    fill(layout, *[4] * 40)
    for gone in range(0, 40, 2):
        layout.release(gone)
    assert [layout.slots(i) for i in (1, 39)] == [slice(4, 8), slice(156, 160)]
    written, held = layout.sizes_each(layout.table.rows([39, 1]))
    assert (written.tolist(), held.tolist()) == ([4, 4], [4, 4])
    owners = layout.columns().owner
    assert owners[owners >= 0].tolist() == list(range(1, 40, 2))
    layout.check()


def test_a_copy_goes_its_own_way() -> None:
    layout = growing()
    fill(layout, 8, 8)
    twin = pickle.loads(pickle.dumps(layout))
    assert twin.append(1, 3).admitted
    assert not twin.append_each(np.array([twin.table.row(1)]))  # its region is full again
    assert (twin.written(1), layout.written(1)) == (11, 8)
    assert twin.columns().used.tolist() == [8, 11, 0]
    assert layout.columns().used.tolist() == [8, 8, 0]
    twin.check()
    layout.check()
