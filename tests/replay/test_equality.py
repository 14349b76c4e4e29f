"""The compiled way against the engine: every event, count, sum, sample and time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.replay.check import VARIANTS, compare, difference
from kvviz.replay.fast import FastLane
from kvviz.replay.plain import PlainLane
from tests.replay.made import base, drawn, load

ENGINES = {
    "roomy": {},
    "chunks": {"engine.chunk": 8, "engine.token_budget": 40},
    "starved": {"engine.token_budget": 9},
    "short queue": {"engine.queue_limit": 3},
    "few at once": {"engine.max_running": 3},
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_events_are_equal(variant, engine):
    """A replay of a million requests would tell of another memory than a run does."""
    layout, changes = VARIANTS[variant]
    found = compare(drawn(3), base({**changes, **ENGINES[engine]}), layout)
    assert found.difference == ""
    assert found.events >= 180  # arrive, admit, finish


def test_the_pressure_is_real():
    """Equality would be shown on traces in which nothing ever runs short."""
    lane = FastLane(drawn(3), base(), "paged")
    lane.serve()
    counts = lane.result().counts
    assert counts["preempted"] > 5
    assert counts["refused"][1] > 5
    lane = FastLane(drawn(3), base({"contiguous.reservation": "exact"}), "contiguous")
    lane.serve()
    assert lane.result().counts["moved"] > 100
    lane = FastLane(drawn(3), base(), "contiguous")
    lane.serve()
    assert lane.result().counts["refused"][2] > 3


CHANGES = st.fixed_dictionaries(
    {
        "engine.token_budget": st.integers(1, 200),
        "engine.max_running": st.integers(1, 32),
        "engine.chunk": st.sampled_from([0, 1, 7, 64]),
        "engine.queue_limit": st.integers(1, 50),
        "paged.block_size": st.sampled_from([1, 3, 16, 64]),
        "paged.admission": st.sampled_from(["chunk", "prompt", "limit"]),
        "paged.watermark": st.sampled_from([0.0, 0.1, 0.5]),
        "paged.null_block": st.booleans(),
        "contiguous.fit": st.sampled_from(["first", "best"]),
        "contiguous.reservation": st.sampled_from(["oracle", "pow2", "max", "exact"]),
    }
)


@given(
    CHANGES,
    st.sampled_from(["paged", "contiguous"]),
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 150), st.integers(1, 60)),
        min_size=1,
        max_size=25,
    ),
    st.integers(80, 400),
)
@settings(max_examples=60)
def test_any_settings(changes, layout, rows, slots):
    """Some corner of the step rule would differ: budgets, blocks of 1, requests that never fit."""
    made = load(sorted(rows), context=256 if slots >= 256 else slots)
    config = base(changes, slots=slots, context=min(slots, 256))
    assert compare(made, config, layout, ids=slots % 2 == 0).difference == ""


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("step", [1, 37, 90])
def test_the_map_is_the_engines(variant, step):
    """The picture of a moment would show other blocks than the engine gave."""
    layout, changes = VARIANTS[variant]
    plain = PlainLane(drawn(3), base(changes), layout, 1)
    fast = FastLane(drawn(3), base(changes), layout, ids=True)
    plain.serve(until=step)
    fast.serve(until=step)
    one, other = plain.snapshot(1), fast.snapshot(1)
    other.check()
    for name in ("start", "size", "used", "owner", "refs"):
        assert np.array_equal(getattr(one.columns, name), getattr(other.columns, name)), name
    for name in (
        "seq_id",
        "seq_used",
        "seq_life",
        "seq_held",
        "seq_since",
        "waiting_id",
        "waiting_need",
    ):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert (one.step, one.admissible, one.free) == (other.step, other.admissible, other.free)
    assert one.counters == other.counters


def test_idle_steps_are_leapt_over():
    """A trace with nights in it would take as long as they do."""
    sparse = load([(0, 20, 5), (10_000_000, 30, 9), (900_000_000, 30, 9)])
    plain = PlainLane(sparse, base(), "paged", 1, events=True)
    fast = FastLane(sparse, base(), "paged", events=100)
    plain.serve()
    fast.serve()
    assert difference(plain, fast) == ""
    assert fast.step == 900_000_009


def test_a_difference_is_found():
    """The check would say `equal` to anything."""
    plain = PlainLane(drawn(3), base(), "paged", 1, events=True)
    fast = FastLane(drawn(3), base({"paged.block_size": 8}), "paged", events=2000)
    plain.serve()
    fast.serve()
    assert difference(plain, fast).startswith("event ")


def test_stops_and_goes_on():
    """A cancelled or stopped replay would not be the same afterwards."""
    whole = FastLane(drawn(5), base(), "contiguous")
    whole.serve()
    parts = FastLane(drawn(5), base(), "contiguous")
    for step in range(1, 400, 7):
        parts.serve(until=step)
    parts.serve()
    assert whole.result().counts == parts.result().counts
    assert np.array_equal(whole.result().samples, parts.result().samples)
    assert whole.result().sums.tolist() == parts.result().sums.tolist()
