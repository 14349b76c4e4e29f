"""Every layout with real tensors, through random steps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from kvviz.caches.layouts import LAYOUTS
from kvviz.config import COMPACTIONS
from tests.caches.machine import CacheMachine

EVERY = [(name, {}) for name in sorted(LAYOUTS)]
GROWING = [
    ("contiguous", {"contiguous.reservation": "exact", "contiguous.compaction": compaction})
    for compaction in COMPACTIONS
]
SHARING = [("paged", {"paged.prefix_sharing": True, "paged.block_size": size}) for size in (2, 3)]


@pytest.mark.parametrize(("name", "pinned"), [*EVERY, *GROWING, *SHARING])
def test_layout_against_a_record(name: str, pinned: dict[str, Any]) -> None:
    """A layout loses, mixes up or leaks slots, or a verdict does not tell the truth."""
    run_state_machine_as_test(
        lambda: CacheMachine(name, pinned),
        settings=settings(max_examples=16, stateful_step_count=20),
    )
