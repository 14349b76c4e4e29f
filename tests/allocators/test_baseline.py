"""Baseline F0: the smallest pool that is half empty and can't serve a request of its half."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.allocators.compact import full_slide
from kvviz.allocators.fits import CHOICES, FitAllocator
from kvviz.caches.contiguous import ContiguousLayout
from kvviz.metrics import external_fragmentation, fragmentation_index, unusable_index
from kvviz.records import FRAGMENTED, Region, Verdict
from tests.helpers import config, request

FITS = sorted(CHOICES)


def checkerboard(fit: str) -> FitAllocator:
    """8192 slots, a to h of 1024 each; a, c, e and g are freed: 4 holes of 1024, 4096 free."""
    allocator = FitAllocator(8192, fit)
    letters = [allocator.allocate(1024) for _ in range(8)]
    for region in letters[::2]:
        allocator.free(region)
    return allocator


@pytest.mark.parametrize("fit", FITS)
def test_no_fit_helps(fit: str) -> None:
    """2048 are wanted, 4096 are free, and no choice of a hole finds them."""
    allocator = checkerboard(fit)
    assert allocator.allocate(2048) is None
    assert (allocator.free_slots, allocator.largest, allocator.hole_count) == (4096, 1024, 4)


@pytest.mark.parametrize("fit", FITS)
def test_numbers(fit: str) -> None:
    """Unusable: no hole holds one, so all of 4096. Index: 1 - (1 + 4096 / 2048) / 4 = 0.25.
    External: 1 - 1024 / 4096 = 0.75."""
    allocator = checkerboard(fit)
    holes = np.array([h.size for h in allocator.holes()])
    assert unusable_index(holes, 2048) == 1.0
    assert fragmentation_index(holes, 2048) == 0.25
    assert external_fragmentation(allocator.free_slots, allocator.largest) == 0.75


@pytest.mark.parametrize("fit", FITS)
def test_compaction_pays_and_admits(fit: str) -> None:
    """Sliding b, d, f and h down copies 4 runs of 1024; then the request lies behind them."""
    allocator = checkerboard(fit)
    plan = full_slide(allocator.live())
    assert [(r.start, r.size, to) for r, to in plan] == [
        (1024, 1024, 0),
        (3072, 1024, 1024),
        (5120, 1024, 2048),
        (7168, 1024, 3072),
    ]
    assert sum(region.size for region, _ in plan) == 4096
    allocator.relocate({region.start: to for region, to in plan})
    assert allocator.holes() == [Region(4096, 4096)]
    assert allocator.allocate(2048) == Region(4096, 2048)
    assert allocator.holes() == [Region(6144, 2048)]


@pytest.mark.parametrize("fit", FITS)
def test_layout_says_the_same(fit: str) -> None:
    """The layout's verdict: fragmented, with 2048 of 4096 free and 1024 at most in a row; with
    compaction it is admitted for 4096 slots moved."""
    run = config({"contiguous.fit": fit})
    layout = ContiguousLayout(run)
    for letter in range(8):
        layout.admit(request(letter, 1000, 25), 1000)
        layout.append(letter, 1000)
        layout.append(letter, 24)
    for letter in range(0, 8, 2):
        layout.release(letter)
    wanted = request(8, 2000, 49)
    assert layout.admit(wanted, 2000) == Verdict(FRAGMENTED, 2048, 4096, 1024)
    layout.reconfigure(run.replace({"contiguous.compaction": "on_refusal"}))
    assert layout.admit(wanted, 2000) == Verdict("admitted", 2048, 4096, 1024, moved=4096)
    assert layout.slots(8) == slice(4096, 4096)
    assert (layout.free, layout.admissible) == (2048, 2048)
