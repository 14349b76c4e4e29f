"""Blocks with several holders, by hand: samples of one prompt, and prefixes found by content."""

from __future__ import annotations

from kvviz.records import ADMITTED, CAPACITY, Move, Verdict
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
