"""The paged lane by hand: block tables, tails, admission, and slots that no block covers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.caches.paged import PagedLayout
from kvviz.records import ADMITTED, CAPACITY, NEVER, RESERVED, Verdict
from tests.caches.by_hand import freed, paged, serve
from tests.helpers import request


def test_block_table_puts_scattered_blocks_in_order() -> None:
    """A request grows over blocks that others left: 7 tokens in blocks 0, 1 of 4 slots, then
    6 more that need block 1's last slot and two more blocks, the one freed last first."""
    layout = paged(4)
    for number, prompt in enumerate((7, 4, 4)):
        serve(layout, request(number, prompt, 30))
    layout.release(1)
    assert layout.append(0, 6) == Verdict(ADMITTED, 8, 44, 44)
    assert layout.block_table(0).tolist() == [0, 1, 2, 4]
    assert layout.slots(0).tolist() == [*range(12), 16]
    assert freed(layout.take_journal()) == [([2], 4)]


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
        serve(layout, request(number, 4, 1))
    for number in range(0, 16, 2):
        layout.release(number)
    assert layout.admit(request(99, 32, 1), 32) == Verdict(ADMITTED, 32, 32, 32)
    layout.append(99, 32)
    assert layout.admit(request(100, 1, 1), 1) == Verdict(CAPACITY, 4, 0, 0)


def test_rest_behind_the_last_block() -> None:
    """70 slots in blocks of 16: six slots are covered by none. They are a hole of the map, no
    free memory, and a request that would need them never fits."""
    layout = paged(16, slots=70)
    columns = layout.columns()
    assert (layout.capacity, layout.usable, layout.free) == (70, 64, 64)
    assert (columns.start[-1], columns.size[-1], columns.owner[-1]) == (64, 6, RESERVED)
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


def test_null_block() -> None:
    """50 blocks of which one is the null block: 49 serve 784 tokens, and one more never fits."""
    layout = paged(16, 800, null_block=True)
    assert (layout.usable, layout.free) == (784, 784)
    assert layout.question(request(0, 1002, 1), 1002).kind == NEVER
    assert layout.question(request(0, 785, 1), 785) == Verdict(NEVER, 800, 784, 784)
    serve(layout, request(0, 784, 1))
    columns = layout.columns()
    assert (columns.owner[0], columns.refs[0], columns.used[0]) == (RESERVED, 1, 0)
    assert (columns.owner[1:] == 0).all()
    assert layout.free == 0


@pytest.mark.parametrize(
    ("block", "blocks", "served"), [(64, 80, 80), (16, 162, 81), (1, 1444, 81)]
)
def test_demand_is_counted_in_blocks(block: int, blocks: int, served: int) -> None:
    """81 requests of 1,444 tokens in all and 5,120 free slots: with pages of 64 each needs one of
    80, so the last is refused; with smaller ones all are served."""
    layout = paged(block, 5120)
    prompts = [18] * 67 + [17] * 14
    assert sum(prompts) == 1444
    kinds = []
    for number, prompt in enumerate(prompts):
        verdict = layout.admit(request(number, prompt, 1), prompt)
        kinds.append(verdict.kind)
        if verdict.admitted:
            layout.append(number, prompt)
    assert kinds == [ADMITTED] * served + [CAPACITY] * (81 - served)
    assert (layout.columns().refs > 0).sum() == blocks


def test_exact_fit_is_admitted() -> None:
    """4,079 tokens in blocks of 256 are 16 blocks of 16: `>` for `>=` would refuse them, and
    taking them twice would take 32. 17 more tokens still fit in them, 18 do not."""
    layout = paged(256, 16 * 256)
    serve(layout, request(0, 4079, 18))
    assert layout.held(0) == 16 * 256
    roomy = paged(256, 32 * 256)
    serve(roomy, request(0, 4079, 30))
    roomy.append(0, 17)
    assert roomy.held(0) == 16 * 256
    roomy.append(0, 1)
    assert roomy.held(0) == 17 * 256


@pytest.mark.parametrize(("written", "count", "need"), [(15, 4, 1), (16, 17, 2), (15, 1, 0)])
def test_several_tokens_at_once(written: int, count: int, need: int) -> None:
    """A test of `length % block == 1` misses blocks when more than one token is written."""
    layout = paged(16, 256)
    serve(layout, request(0, written, 40))
    assert layout.append(0, count).need == need * 16
    assert layout.held(0) == (1 + need) * 16


def test_two_blocks_needed_and_one_free() -> None:
    layout = paged(16)
    serve(layout, request(0, 16, 40))
    serve(layout, request(1, 17, 1))
    assert layout.append(0, 17) == Verdict(CAPACITY, 32, 16, 16)
    assert (layout.held(0), layout.written(0)) == (16, 16)


@pytest.mark.parametrize(("prompt", "used", "written"), [(17, 200, 1700), (18, 200, 1800)])
def test_block_usage_is_not_slot_usage(prompt: int, used: int, written: int) -> None:
    """100 requests of 17 tokens: 66.7 % of 300 blocks of 16 beside 35.4 % of the slots."""
    layout = paged(16, 4800)
    for number in range(100):
        serve(layout, request(number, prompt, 1))
    assert (layout.columns().refs > 0).sum() == used
    assert layout.columns().used.sum() == written
    assert layout.extras()["tail"] == used * 16 - written


def test_watermark_is_kept_from_admissions_only() -> None:
    """A quarter of 64 blocks stays free for those that run; an idle pool holds nothing back."""
    layout = paged(1, 64, watermark=0.25)
    assert layout.admissible == 64
    serve(layout, request(0, 40, 20))
    assert (layout.free, layout.admissible) == (24, 8)
    assert layout.question(request(1, 9, 1), 9) == Verdict(CAPACITY, 9, 24, 8)
    assert layout.fits(8) and not layout.fits(9)
    assert layout.append(0, 19).admitted
    assert (layout.free, layout.admissible) == (5, 0)


@pytest.mark.parametrize(
    ("admission", "need", "held"), [("chunk", 16, 8), ("prompt", 40, 8), ("limit", 56, 56)]
)
def test_what_admission_asks_for(admission: str, need: int, held: int) -> None:
    """Prompt 37, limit 20, chunks of 10, blocks of 8. Only `limit` takes all of it at once."""
    layout = paged(8, 512, admission=admission, chunk=10)
    asked = request(0, 37, 5, limit=20)
    assert layout.admit(asked, 37) == Verdict(ADMITTED, need, 512, 512)
    layout.append(0, 8)
    assert (layout.held(0), layout.free) == (held, 512 - held)


def test_a_reserved_life_is_never_refused_later() -> None:
    """`limit` reserves, so that a neighbour can't take what this one will write."""
    layout = paged(8, admission="limit")
    layout.admit(request(0, 10, 23), 10)
    assert layout.admit(request(1, 30, 10), 30).kind == CAPACITY
    assert layout.admit(request(1, 30, 3), 30).admitted
    assert layout.free == 0
    assert layout.append(0, 32).admitted and layout.append(1, 32).admitted


@settings(max_examples=40)
@given(data=st.data())
def test_append_each_is_append_one_by_one(data: st.DataObject) -> None:
    """The shortcut of a step in which all decode forgets a block, takes one too many, or leaves
    half of its work behind when blocks run short."""
    block = data.draw(st.sampled_from([1, 2, 4]))
    prompts = data.draw(st.lists(st.integers(1, 14), min_size=1, max_size=6))
    twins = [paged(block), paged(block)]
    for layout in twins:
        for number, prompt in enumerate(prompts):
            if layout.admit(request(number, prompt, 40), prompt).admitted:
                layout.append(number, prompt)
    live = [r for r in range(len(prompts)) if twins[0].holds(r)]
    for _ in range(data.draw(st.integers(1, 30))):
        chosen = data.draw(st.permutations(live))[: data.draw(st.integers(1, len(live)))]
        before = state(twins[0], live)
        lines = np.array([twins[0].table.row(r) for r in chosen], np.int64)
        if not twins[0].append_each(lines):
            assert state(twins[0], live) == before
            short = sum(twins[1].written(r) % block == 0 for r in chosen)
            assert short * block > twins[1].free
            return
        assert all(twins[1].append(r, 1).admitted for r in chosen)
        assert state(twins[0], live) == state(twins[1], live)
        twins[0].check()


def state(layout: PagedLayout, live: list[int]) -> list:
    tables = {r: (layout.written(r), layout.block_table(r).tolist()) for r in live}
    return [layout.free, tables, [c.tolist() for c in vars(layout.columns()).values()]]


def test_append_each_leaves_shared_tails_to_append() -> None:
    layout = paged(4)
    serve(layout, request(0, 6, 9))
    layout.fork(0, request(1, 6, 9))
    lines = np.array([layout.table.row(r) for r in (0, 1)])
    assert not layout.append_each(lines)
    assert (layout.written(0), layout.written(1), layout.take_journal()) == (6, 6, [])
    assert [layout.append(r, 1).moved for r in (0, 1)] == [2, 0]
    assert layout.append_each(lines)
