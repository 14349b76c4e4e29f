"""Past steps: what was shown then is shown again, while the run goes on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvviz.build import build_lanes
from kvviz.engine.history import KEYFRAME_STEPS
from kvviz.errors import KvvizError
from kvviz.live.past import Past, refusal_steps
from kvviz.live.published import WINDOW, Published, view_lane
from kvviz.records import QUEUED
from tests.engine.test_history import assert_same
from tests.live.support import dry, hold, until

NONE = Published(0, 0, "paused", "", dry(), "")


def record(steps: int, budget: int = 1 << 20):
    """Busy lanes, their past, and what was published at each step."""
    lanes = build_lanes(dry({"mix.rate": 0.8}))
    past = Past(list(lanes.engines), budget)
    shown = []
    for _ in range(steps):
        lanes.step()
        shots = past.add(lanes)
        views = {name: view_lane(lanes, name, shots[name]) for name in shots}
        hues = past.hues.update(list(shots.values()))
        shown.append(replace(NONE, step=lanes.step_count, lanes=views, hues=hues))
    return lanes, past, shown


def test_a_past_step_is_what_was_shown_then() -> None:
    """Map, verdict, refusals, speed or colours of a past step would be made up."""
    lanes, past, shown = record(150)
    for then in shown[::7]:
        now = past.publication(lanes, then.step, NONE)
        assert now.looking
        assert (then.step, then.hues) == (now.step, now.hues)
        for name, view in then.lanes.items():
            again = now.lanes[name]
            assert_same(view.snapshot, again.snapshot)
            assert view.refusals == again.refusals
            for field in ("tokens_per_second", "checks_made", "checked_step"):
                assert getattr(view, field) == getattr(again, field)
            steps = again.series.step
            assert steps[0] <= then.step - 1 <= steps[-1]
            assert all(event.step >= then.step for event in again.later)
            assert {*again.refusals, *again.later} <= {
                e for e in lanes.engines[name].recorder.events if e.kind == "refuse"
            }


def test_the_window_of_a_long_run_lies_around_the_step() -> None:
    """The cursor would be outside the chart."""
    lanes, past, _ = record(WINDOW + 400)
    for step in (1, 300, 650, WINDOW + 399):
        series = past.publication(lanes, step, NONE).lanes["paged"].series
        assert series.step[0] <= step - 1 <= series.step[-1]
        assert len(series.step) == WINDOW
        assert series.step[0] == series.dropped


def test_jumps_go_from_refusal_to_refusal() -> None:
    """The buttons would stop between refusals, or never reach the first."""
    lanes, past, shown = record(150)
    expected = sorted(
        {
            event.step + 1
            for event in {e for then in shown for v in then.lanes.values() for e in v.refusals}
            if event.verdict != QUEUED
        }
    )
    assert len(expected) > 3
    assert expected == refusal_steps(lanes, past.first, past.last)
    found, step = [], 0
    while (after := past.refusal(lanes, step, True)) != step:
        found.append(step := after)
    assert expected == found
    assert expected[-2] == past.refusal(lanes, step, False)
    assert expected[0] == past.refusal(lanes, expected[0], False)


def test_a_step_that_is_gone_shows_the_nearest() -> None:
    """Scrubbing on a small budget would fail."""
    lanes, past, shown = record(400, budget=30_000)
    assert past.first > 1
    assert past.nbytes <= 63_000  # the block tables of who runs are kept beside the budget
    assert past.first == past.publication(lanes, 0, NONE).step
    assert shown[-1].step == past.publication(lanes, 9999, NONE).step


def test_the_thread_answers_while_it_runs_and_when_it_stands(start) -> None:
    """A viewer would wait for ever, or read lanes that are being stepped."""
    runner = start()
    until(lambda: runner.latest().step > 60)
    assert runner.past(41).result(15).step == 41
    paused = hold(runner)
    assert (paused.first, paused.last) == (0, paused.step)
    again = runner.past(paused.step).result(15)
    for name, view in paused.lanes.items():
        assert_same(view.snapshot, again.lanes[name].snapshot)
    assert paused.hues == again.hues
    runner.step()
    until(lambda: runner.latest().step == paused.step + 1)
    assert paused.step == runner.past(paused.step).result(15).step
    assert runner.latest().state == "paused"


def test_a_question_that_fails_is_the_askers(start) -> None:
    """One viewer's mistake would stop the run for all."""
    runner = start()
    until(lambda: runner.latest().step > 5)
    answer = runner.ask(lambda lanes, past, newest: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        answer.result(15)
    step = runner.latest().step
    until(lambda: runner.latest().step > step)
    assert runner.latest().state == "running"


def test_there_is_no_past_before_the_start(start, builder) -> None:
    builder.refuses = KvvizError("no room")
    runner = start()
    until(lambda: runner.latest().state == "failed")
    with pytest.raises(KvvizError, match="Nothing runs yet"):
        runner.past(0).result(15)


def test_a_change_of_settings_is_told(start) -> None:
    """A run that its settings do not make again would look like one that they do."""
    runner = start()
    until(lambda: runner.latest().step > 5)
    assert runner.latest().changes == ()
    runner.apply(runner.config.replace({"mix.rate": 0.9}))
    until(lambda: runner.latest().changes)
    assert len(runner.latest().changes) == 1
    runner.reset()
    until(lambda: runner.latest().changes == ())


def test_colours_do_not_depend_on_what_was_published(start) -> None:
    """Two sessions with one seed would show different maps."""
    slow, fast = start(speed=200.0), start()
    for runner in (slow, fast):
        until(lambda r=runner: r.latest().step > 120)
    one, two = (runner.past(100).result(15) for runner in (slow, fast))
    assert one.hues == two.hues
    assert len(one.hues) > 3


def test_a_sample_covers_the_run_evenly() -> None:
    """The picture of the whole run would be bent, or lack its end."""
    _, past, _ = record(330)
    for count in (50, 100, 1000):
        sample = past.sample(count, "paged")
        steps = [shot.step for shot, _ in sample]
        assert 3 < len(steps) <= count
        assert len(set(np.diff(steps).tolist())) == 1
        assert past.last - steps[-1] < KEYFRAME_STEPS
        assert all(set(shot.seq_id.tolist()) <= set(hues) for shot, hues in sample)
