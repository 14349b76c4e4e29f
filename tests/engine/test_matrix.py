"""Every policy with the real model: answers, the map against the tensors, and the dry run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvviz.build import Backend
from kvviz.engine.lanes import Lanes
from kvviz.records import Counters
from tests.helpers import lanes, run_steps, small

TIGHT = {
    "memory.slots": 192,
    "memory.context": 96,
    "mix.long_prompt": 60,
    "contiguous.reservation": "exact",
    "paged.block_size": 4,
    "engine.temperature": 0.8,
    "engine.check_every": 8,
}
PREFIX = {
    "paged.prefix_sharing": True,
    "mix.prefix_share": 0.8,
    "mix.prefix_tokens": 18,
    "mix.prefixes": 2,
}
SAMPLES = {"mix.samples": 3, "mix.rate": 0.15}
SWAP = {"engine.preemption": "swap"}

# settings, and the counters that must not be 0: of both lanes, of the paged lane
MATRIX: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]] = {
    "prefix": (PREFIX, (), ("cached",)),
    "samples": (SAMPLES, (), ("copied",)),
    "samples-reserved": (
        {**SAMPLES, "paged.admission": "limit", "memory.slots": 448},
        (),
        ("copied",),
    ),
    "swap": (SWAP, ("swapped", "preempted"), ()),
    "swap-little-host": ({**SWAP, "engine.swap_slots": 40}, ("swapped", "recomputed"), ()),
    "chunk": (
        {"engine.chunk": 5, "paged.admission": "chunk"},
        ("preempted", "recomputed"),
        (),
    ),
    "limit": ({"paged.admission": "limit", "paged.null_block": True, "memory.slots": 320}, (), ()),
    "watermark": ({"paged.watermark": 0.2, "paged.null_block": True}, (), ("preempted",)),
    "oldest": ({"engine.victim": "oldest"}, ("preempted",), ()),
    "priority": ({"engine.victim": "priority", "mix.urgent_share": 0.4}, ("preempted",), ()),
    "skip": ({"engine.queue": "skip"}, ("bypassed",), ()),
    "everything": (
        {
            **PREFIX,
            **SAMPLES,
            **SWAP,
            "engine.chunk": 7,
            "engine.queue": "skip",
            "engine.victim": "priority",
            "mix.urgent_share": 0.4,
            "mix.rate": 0.25,
            "contiguous.compaction": "on_refusal",
            "paged.admission": "chunk",
        },
        ("swapped",),
        ("copied", "cached", "preempted"),
    ),
}
STEPS = 120


def books(run: Lanes, name: str) -> tuple[Counters, list, list[list[int]]]:
    """Counters, events and columns of a lane, without times."""
    engine = run.engines[name]
    shot = engine.snapshot()
    columns = [c.tolist() for c in vars(shot.columns).values() if c is not None]
    return replace(shot.counters, move_seconds=0.0), list(engine.recorder.events), columns


@pytest.mark.parametrize("name", MATRIX)
def test_policy_with_the_real_model(name: str, backend: Backend) -> None:
    """A policy changes an answer, leaves a slot with other content than the books say, or tells
    the dry run another story."""
    changes, both, paged = MATRIX[name]
    run = small({**TIGHT, **changes})
    with lanes(run, backend) as real, lanes(replace(run, dry=True)) as dry:
        run_steps(real, STEPS)
        run_steps(dry, STEPS)
        for lane, engine in real.engines.items():
            assert books(real, lane) == books(dry, lane)
            assert (engine.checks_made, engine.checks_failed) == (STEPS // 8, 0)
            counters = engine.counters()
            wanted = both + (paged if lane == "paged" else ())
            assert all(getattr(counters, count) > 0 for count in wanted), counters
        assert real.comparison.equal == real.comparison.compared > 5
    assert backend.budget.used_bytes == 0
