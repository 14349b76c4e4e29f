"""Every lane on one clock, with the real model: equal answers, maps that the tensors agree to."""

from __future__ import annotations

from typing import Any

import pytest

from kvviz.build import Backend
from kvviz.caches.layouts import LANES, LAYOUTS
from kvviz.config import LANES as NAMES
from tests.helpers import lanes, run_steps, small

STEPS = 120
# Six pages for the lane that maps memory by the page
ROOMY = {"memory.slots": 1536, "mix.rate": 0.7, "engine.check_every": 8, "cells.buffers": 8}

COMPACTIONS: dict[str, dict[str, Any]] = {
    "slide": {"contiguous.compaction": "on_refusal"},
    "fewest": {"contiguous.compaction": "on_refusal", "contiguous.compact_by": "fewest"},
    "threshold": {"contiguous.compaction": "threshold", "contiguous.compact_share": 0.1},
    "steady": {"contiguous.compaction": "steady", "contiguous.compact_slots": 24},
}
LISTS = {
    "deferred": {"contiguous.coalesce": "deferred"},
    "lifo": {"contiguous.order": "lifo", "contiguous.fit": "next"},
}


def test_the_config_knows_every_lane() -> None:
    """A lane that can be served can't be asked for, or the other way round."""
    assert tuple(LANES) == NAMES
    assert {lane.layout for lane in LANES.values()} == set(LAYOUTS)


def test_every_lane_gives_the_same_answers(backend: Backend) -> None:
    """A layout that hands the model a wrong slot, or loses one."""
    run = small({**ROOMY, "lanes": ",".join(LANES), "mix.prefix_share": 0.5, "mix.prefixes": 2})
    with lanes(run, backend) as built:
        run_steps(built, STEPS)
        assert list(built.engines) == list(LANES)
        for name, engine in built.engines.items():
            assert (engine.checks_made, engine.checks_failed) == (STEPS // 8, 0), name
        assert built.comparison.equal == built.comparison.compared > 10
    assert backend.budget.used_bytes == 0


@pytest.mark.parametrize("lists", LISTS)
@pytest.mark.parametrize("compaction", COMPACTIONS)
def test_compaction_moves_what_it_should(compaction: str, lists: str, backend: Backend) -> None:
    """Content that did not follow its region, or a policy that never moves anything."""
    changes = {**COMPACTIONS[compaction], **LISTS[lists], "contiguous.reservation": "exact"}
    run = small({"memory.slots": 256, "lanes": "contiguous,buddy,tlsf", "engine.check_every": 4})
    with lanes(run.replace(changes), backend) as built:
        run_steps(built, STEPS)
        for name, engine in built.engines.items():
            assert (engine.checks_made, engine.checks_failed) == (STEPS // 4, 0), name
        moved = {name: e.counters().slots_moved for name, e in built.engines.items()}
        assert moved["contiguous"] > 0 and moved["tlsf"] > 0
        assert built.comparison.equal == built.comparison.compared > 5
