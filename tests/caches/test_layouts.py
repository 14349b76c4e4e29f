"""Every lane with real tensors, through random steps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from kvviz.caches.layouts import LANES
from kvviz.shapes import ModelShape
from tests.caches.machine import SHAPE, CacheMachine

# A slot of one page of the system, where those have 4 KiB
WIDE = ModelShape(num_hidden_layers=2, num_key_value_heads=2, head_dim=128)

CASES: dict[str, tuple[str, dict[str, Any], ModelShape]] = {
    **{name: (name, {}, SHAPE) for name in LANES},
    **{
        f"growing-{name}": (
            "contiguous",
            {
                "contiguous.reservation": "exact",
                "contiguous.compaction": name.split(":")[0],
                **more,
            },
            SHAPE,
        )
        for name, more in {
            "off": {},
            "on_refusal:slide": {"contiguous.compact_by": "slide"},
            "on_refusal:fewest": {"contiguous.compact_by": "fewest"},
            "threshold": {"contiguous.compact_share": 0.0},
            "steady": {},
        }.items()
    },
    **{
        f"{name}-on-refusal": (
            name,
            {"contiguous.reservation": "exact", "contiguous.compaction": "on_refusal"},
            SHAPE,
        )
        for name in ("buddy", "tlsf")
    },
    "deferred": ("contiguous", {"contiguous.coalesce": "deferred"}, SHAPE),
    "lifo": ("contiguous", {"contiguous.order": "lifo"}, SHAPE),
    "sharing-2": ("prefix", {"paged.block_size": 2}, SHAPE),
    "sharing-3": ("prefix", {"paged.block_size": 3}, SHAPE),
    "virtual-wide": ("virtual", {}, WIDE),
}


@pytest.mark.untraced
@pytest.mark.parametrize("case", CASES)
def test_layout_against_a_record(case: str) -> None:
    """A layout loses, mixes up or leaks slots, or a verdict does not tell the truth."""
    run_state_machine_as_test(
        lambda: CacheMachine(*CASES[case]),
        settings=settings(max_examples=10, stateful_step_count=20),
    )
