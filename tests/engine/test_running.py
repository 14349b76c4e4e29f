"""The rows of a snapshot that tell of the running requests."""

from __future__ import annotations

import numpy as np

from kvviz.build import build_lanes
from kvviz.engine.running import running_columns
from tests.helpers import small


def test_each_running_request_has_its_row():
    """The inspector and the map would tell of another request."""
    lanes = build_lanes(small({"dry": True, "mix.rate": 0.8}), history=16)
    for _ in range(40):
        lanes.step()
    for engine in lanes.engines.values():
        running = engine.scheduler.running
        assert len(running) > 1
        found = running_columns(running, engine.layout)
        assert [
            (
                s.request.id,
                s.written,
                s.request.prompt_len + s.request.output_len - 1,
                engine.layout.held(s.request.id),
                s.request.prompt_len,
                s.admitted,
            )
            for s in running
        ] == list(zip(*(column.tolist() for column in found.values()), strict=True))
        shot = engine.snapshot()
        for name, column in found.items():
            assert column.dtype == np.int64 and np.array_equal(getattr(shot, name), column)


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
