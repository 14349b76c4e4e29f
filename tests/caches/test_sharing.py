"""Blocks with several holders, by hand: samples of one prompt, and prefixes found by content."""

from __future__ import annotations

from dataclasses import replace

from kvviz.records import ADMITTED, CAPACITY, SIBLINGS, Move, Verdict
from tests.caches.by_hand import alike, block_refs, freed, paged, serve
from tests.helpers import request


def test_samples_share_the_prompt_and_copy_its_tail() -> None:
    """Prompt 40 in blocks of 16, four samples: three blocks for all of them, the last one in
    part. The first three to write copy its 8 slots, the fourth has it to itself: six blocks
    instead of twelve."""
    layout = paged(16, 512)
    samples = [request(number, 40, 20) for number in range(4)]
    serve(layout, samples[0])
    for child in samples[1:]:
        assert layout.fork(0, child) == Verdict(ADMITTED, 0, 464, 464, cached=40)
    assert block_refs(layout) == {0: 4, 1: 4, 2: 4}
    moved = [layout.append(number, 1).moved for number in range(4)]
    assert moved == [8, 8, 8, 0]
    assert block_refs(layout) == {0: 4, 1: 4, 2: 1, 3: 1, 4: 1, 5: 1}
    assert layout.take_journal() == [Move(32, 48, 8, 0), Move(32, 64, 8, 1), Move(32, 80, 8, 2)]
    assert layout.extras()["shared_saved"] == 6 * 16
    free = layout.free
    layout.release(1)
    assert layout.free - free == 16
    layout.check()


def test_copy_needs_a_block() -> None:
    """No block is free for the copy of a shared tail: the append is refused, and the sample that
    leaves makes it needless."""
    layout = paged(16)
    serve(layout, request(0, 56, 5))
    layout.fork(0, request(1, 56, 5))
    assert layout.append(0, 1) == Verdict(CAPACITY, 16, 0, 0)
    assert (layout.written(0), layout.take_journal()) == (56, [])
    layout.release(1)
    assert layout.append(0, 1) == Verdict(ADMITTED, 0, 0, 0)


def test_full_blocks_of_a_shared_prefix_are_found() -> None:
    """20 shared tokens in blocks of 8: two blocks are found and the third, in part shared, is
    computed. Blocks that others hold are free of charge."""
    layout = paged(8, 256, prefix_sharing=True)
    assert serve(layout, alike(0, 30, 20)) == 0
    assert layout.admit(alike(1, 30, 20), 30) == Verdict(ADMITTED, 16, 224, 224, cached=16)
    assert layout.written(1) == 16
    assert layout.block_table(1).tolist() == layout.block_table(0).tolist()[:2]


def test_one_token_is_always_computed() -> None:
    """The same prompt of 16 again: its last block is found, but somebody must give the logits."""
    layout = paged(8, 256, prefix_sharing=True)
    serve(layout, alike(0, 16, 0, text=3))
    assert layout.admit(alike(1, 16, 0, text=3), 16).cached == 8
    assert layout.admit(alike(2, 16, 0, text=4), 16).cached == 0


def test_what_is_not_computed_yet_is_not_found() -> None:
    """Two alike in one step: the second would read blocks that nobody has written."""
    layout = paged(8, 256, prefix_sharing=True)
    layout.admit(alike(0, 16, 12), 16)
    layout.append(0, 16)
    assert layout.admit(alike(1, 16, 12), 16).cached == 0
    layout.take_journal()
    assert layout.admit(alike(2, 16, 12), 16).cached == 8


def test_blocks_of_a_victim_are_not_registered() -> None:
    """It gave way in the step that was to fill its blocks, so they hold nothing."""
    layout = paged(8, 256, prefix_sharing=True)
    layout.admit(alike(0, 16, 12), 16)
    layout.append(0, 16)
    layout.release(0)
    layout.take_journal()
    assert layout.admit(alike(1, 16, 12), 16).cached == 0
    assert len(layout.cached_slots()) == 0


def test_cached_prefix_is_free_memory_until_it_is_needed() -> None:
    """8 blocks: a prompt of four leaves, and its three full blocks stay to be found; they count
    as free, are shown as cached holes, and a large request evicts the tail first."""
    layout = paged(8, prefix_sharing=True)
    serve(layout, alike(0, 28, 0, text=1))
    layout.release(0)
    layout.take_journal()
    assert (layout.free, layout.extras()["cached_blocks"]) == (64, 3)
    assert layout.cached_slots().tolist() == list(range(24))
    assert layout.columns().cached.tolist() == [8, 8, 8, 0, 0, 0, 0, 0]
    layout.admit(alike(1, 48, 0, text=2), 48)
    layout.append(1, 48)
    assert freed(layout.take_journal()) == [([2], 8)]
    assert layout.question(alike(2, 28, 0, text=1), 28).need == 32
    assert layout.question(alike(2, 28, 0, text=1), 28).kind == CAPACITY
    assert layout.admit(alike(3, 16, 0, text=2), 16).kind == ADMITTED
    layout.release(3)
    layout.release(1)
    assert layout.admit(alike(2, 28, 0, text=1), 28).cached == 16


def test_least_recently_used_prefix_goes_first() -> None:
    """Two prompts of three blocks lie cached among nine, and the older one is used again. When
    six blocks are wanted, three must be evicted: its unused tail, and two of the other's."""
    layout = paged(8, 72, prefix_sharing=True)
    for number in (0, 1):
        serve(layout, alike(number, 24, 0, text=number))
    layout.release(0)
    layout.release(1)
    assert serve(layout, alike(2, 24, 0, text=0)) == 16
    layout.release(2)
    assert serve(layout, alike(3, 48, 0, text=9)) == 0
    layout.release(3)
    found = {text: layout.admit(alike(10 + text, 24, 0, text=text), 24).cached for text in (0, 1)}
    assert found == {0: 16, 1: 8}


def test_limit_holds_blocks_for_all_samples() -> None:
    """Prompt 40 + limit 10 in blocks of 16: 49 slots in 4 blocks, and for each of two further
    samples 2 more: a copy of the block with 8 tokens, and one behind it. 8 blocks from the start;
    when all have begun, each has two of its own, and nobody takes one later."""
    layout = paged(16, 160, admission="limit")
    asked = replace(request(0, 40, 10), samples=3)
    assert layout.admit(asked, 40) == Verdict(ADMITTED, 128, 160, 160)
    layout.append(0, 40)
    assert (layout.held(0), layout.free) == (128, 32)
    for index in (1, 2):
        begun = layout.fork(0, asked.sibling(index))
        assert begun == Verdict(ADMITTED, 32, 32, 32, moved=8, cached=32)
    samples = [0, SIBLINGS, 2 * SIBLINGS]
    assert [layout.held(r) for r in samples] == [64, 64, 64]
    assert block_refs(layout) == {0: 3, 1: 3, **dict.fromkeys(range(2, 8), 1)}
    assert [move[:3] for move in layout.take_journal()] == [(32, 96, 8), (32, 64, 8)]
    assert [layout.append(r, 9).moved for r in samples] == [0, 0, 0]
    assert (layout.free, layout.take_journal()) == (32, [])
    layout.check()


def test_limit_holds_no_more_than_the_pool_has() -> None:
    """Of three further samples the pool of 6 blocks could hold one: 4 + 2. That much is held, or
    a request that can be served, sample by sample, is told that it never fits."""
    layout = paged(16, 96, admission="limit")
    asked = replace(request(0, 40, 10), samples=4)
    assert layout.admit(asked, 40) == Verdict(ADMITTED, 96, 96, 96)
    layout.append(0, 40)
    assert layout.fork(0, asked.sibling(1)).admitted
    assert layout.fork(0, asked.sibling(2)) == Verdict(CAPACITY, 32, 0, 0)
    assert layout.append(0, 9).admitted and layout.append(SIBLINGS, 9).admitted


def test_blocks_of_samples_that_never_begin_are_given_back() -> None:
    """No turn for the samples: with the next token of the first the rest is free again. One
    token each: no sample ever writes, so none needs a copy."""
    layout = paged(16, 160, admission="limit")
    layout.admit(replace(request(0, 40, 10), samples=3), 40)
    layout.append(0, 40)
    assert layout.append(0, 1).admitted
    assert (layout.held(0), layout.free) == (64, 96)
    layout.check()
    one = replace(request(1, 40, 1), samples=3)
    assert layout.admit(one, 40).need == 48
    layout.append(1, 40)
    assert layout.fork(1, one.sibling(1)) == Verdict(ADMITTED, 0, 48, 48, cached=40)
