"""The benchmark's own driver: it must serve the same trace everywhere and notice a lost token."""

from __future__ import annotations

import pytest

from kvviz.allocators.fits import FitAllocator
from kvviz.bench.allocators import ABLE, holed
from kvviz.bench.blocks import StackLayout, paged_layout, serve_in_turns
from kvviz.bench.linear import LinearAllocator


def test_both_serve_the_same_trace() -> None:
    """A ratio of two runs that did different work says nothing."""
    ours, stack = serve_in_turns([paged_layout, StackLayout], 512, 30)
    assert (ours.tokens, ours.peak) == (stack.tokens, stack.peak)
    assert ours.tokens > 30 * 100 and 0.85 < ours.peak <= 1


def test_a_lost_token_is_noticed() -> None:
    """A layout that skips work would win."""

    class Forgetful(StackLayout):
        def append_each(self, ids: list[int]) -> None:
            super().append_each(list(ids)[1:])

    with pytest.raises(AssertionError):
        serve_in_turns([Forgetful], 512, 5)


def test_pools_with_holes_are_alike() -> None:
    """The searched and the plain allocator must start from the same holes."""
    fast = holed(lambda slots: FitAllocator(slots, "best"), 64)
    slow = holed(lambda slots: LinearAllocator(slots, "best"), 64)
    assert fast.holes() == slow.holes()
    assert sum(hole.size >= 32 for hole in fast.holes()) == ABLE
