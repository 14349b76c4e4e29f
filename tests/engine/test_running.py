"""The rows of a snapshot that tell of the running requests."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from kvviz.build import build_lanes
from kvviz.caches.layouts import LANES
from kvviz.engine.running import RunningFacts, running_columns
from kvviz.engine.sequence import Sequence
from tests.helpers import request, small


@pytest.mark.parametrize("name", LANES)
def test_each_running_request_has_its_row(name):
    """The inspector and the map would tell of another request."""
    lanes = build_lanes(small({"dry": True, "mix.rate": 0.8, "lanes": name}), history=16)
    for _ in range(40):
        lanes.step()
    engine = lanes.engines[name]
    running = engine.scheduler.running
    assert len(running) > 1 and lanes.finish(running[1].request.id)
    for _ in range(4):
        found = running_columns(running, engine.scheduler.facts, engine.layout)
        assert [
            (
                s.request.id,
                engine.layout.written(s.request.id),
                s.request.prompt_len + s.request.output_len - 1,
                engine.layout.held(s.request.id),
                s.request.prompt_len,
                s.admitted,
            )
            for s in running
        ] == list(zip(*(column.tolist() for column in found.values()), strict=True))
        assert found["seq_used"].tolist() == [s.written for s in running]
        shot = engine.snapshot()
        for seq, column in found.items():
            assert column.dtype == np.int64 and np.array_equal(getattr(shot, seq), column)
        lanes.step()


def test_hurried_steps_are_checked_once_at_their_end():
    """A run brought to a far step would spend its time on maps that nobody sees, or show one that
    was never checked."""
    lanes, checked = build_lanes(small({"dry": True, "engine.check_every": 1}), history=16), []
    for name, engine in lanes.engines.items():
        check = engine.layout.check
        engine.layout.check = lambda name=name, check=check: (checked.append(name), check())
    lanes.hurry(True)
    for _ in range(10):
        lanes.step()
    assert checked == []
    lanes.hurry(False)
    assert checked == list(lanes.engines)
    lanes.step()
    assert checked == 2 * list(lanes.engines)


def test_facts_follow_the_list():
    """Somebody in the middle leaves, and those behind have another's prompt and life."""
    facts, listed, rng = RunningFacts(), [], Random(1)
    for id in range(400):
        sequence = Sequence(request(id, 1 + id % 7, 1 + id % 5), 0, admitted=id)
        facts.add(sequence, 1000 - id)
        listed.append(sequence)
        if rng.random() < 0.6:
            at = rng.randrange(len(listed))
            del listed[at]
            facts.remove(at)
    assert len(listed) > 64
    rows = [
        (s.request.id, s.request.life, s.request.prompt_len, s.admitted, 1000 - s.request.id)
        for s in listed
    ]
    assert list(zip(*facts.columns().tolist(), strict=True)) == rows
    assert facts.lines(9).tolist() == [row[-1] for row in rows[:9]]
