"""A link leads to the same picture: the run is made anew, up to its step."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.build import Backend, build_lanes
from kvviz.live import runner as runner_module
from kvviz.live.published import Published
from kvviz.live.runner import LiveRunner
from tests.engine.test_history import assert_same
from tests.helpers import small
from tests.live.support import dry, hold, until


def test_a_replayed_run_stands_at_its_step_and_equals_the_first(start) -> None:
    """The link would lead to another map, or to other colours."""
    first = start()
    until(lambda: first.latest().step > 150)
    again = start(replay_to=150)
    until(lambda: again.latest().state == "paused")
    there, then = again.latest(), first.past(150).result(15)
    assert (there.step, there.stream_hash, there.hues) == (150, then.stream_hash, then.hues)
    for name, view in then.lanes.items():
        one, two = view.snapshot.columns, there.lanes[name].snapshot.columns
        assert one.owner.tolist() == two.owner.tolist()
        assert one.used.tolist() == two.used.tolist()
        assert view.refusals == there.lanes[name].refusals


KEPT = 200


@pytest.fixture(autouse=True)
def _keeps_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay of 250 steps is a long one."""
    monkeypatch.setattr(runner_module, "REPLAY_KEPT", KEPT)


def test_a_long_replay_keeps_the_newest_steps(start) -> None:
    """It would take minutes, or nobody could look back from where it stands."""
    last = KEPT + 50
    runner, whole = start(replay_to=last), start()
    until(lambda: runner.latest().state == "paused")
    newest = runner.latest()
    assert newest.last == last
    until(lambda: runner.latest().first == 51)
    until(lambda: whole.latest().step > last)
    assert newest.hues == whole.past(last).result(15).hues
    for step in (51, 120, last - 1, last):
        _assert_same_picture(runner.past(step).result(15), whole.past(step).result(15))
    runner.start()
    until(lambda: runner.latest().step > newest.step + 5)
    assert runner.latest().first == 51


def test_steps_behind_a_long_replay_are_made_when_asked_for(start) -> None:
    """The first look back would show the step where it stands."""
    last = KEPT + 50
    runner, whole = start(replay_to=last), start()
    until(lambda: whole.latest().step > last)
    refusal = whole.refusal(last, False).result(15)
    assert refusal < last
    assert runner.refusal(last, False).result(15) == refusal
    again = start(replay_to=last)
    _assert_same_picture(again.past(last - 50).result(15), whole.past(last - 50).result(15))


def test_a_long_replay_that_goes_on_at_once_has_the_steps_behind_it_too(start) -> None:
    """Play at once, and the history would have a gap or end the run."""
    last = KEPT + 50
    runner = start(replay_to=last, speed=200.0)
    runner.start()
    until(lambda: runner.latest().step > last + 3 and runner.latest().first == 51)
    pictures = [runner.past(step).result(15).step for step in (51, last - 1, last, last + 1)]
    assert pictures == [51, last - 1, last, last + 1]


def _assert_same_picture(one: Published, two: Published) -> None:
    assert (one.step, one.stream_hash, one.hues) == (two.step, two.stream_hash, two.hues)
    for name, view in one.lanes.items():
        other = two.lanes[name]
        for column, value in vars(view.snapshot.columns).items():
            assert np.array_equal(value, getattr(other.snapshot.columns, column)), column
        assert view.snapshot.seq_used.tolist() == other.snapshot.seq_used.tolist()
        assert view.snapshot.counters == other.snapshot.counters
        assert view.refusals == other.refusals


def test_real_runs_are_replayed_dry_and_carried_onto_tensors(backend: Backend) -> None:
    """The link would wait for the model, or the button lead to another map."""
    config = small()
    runner = LiveRunner(config, lambda c: build_lanes(c, None if c.dry else backend), replay_to=40)
    try:
        until(lambda: runner.latest().state == "paused")
        replayed = runner.latest()
        assert (replayed.replayed, replayed.config.dry, replayed.step) == (True, True, 40)
        assert runner.apply(config) == []
        assert hold(runner).replayed
        runner.onto_tensors()
        until(lambda: not runner.latest().config.dry and runner.latest().step == 40, 60)
        real = hold(runner)
        assert not real.replayed
        assert replayed.hues == real.hues
        for name, view in replayed.lanes.items():
            one, two = view.snapshot, real.lanes[name].snapshot
            assert one.columns.owner.tolist() == two.columns.owner.tolist()
            assert one.columns.used.tolist() == two.columns.used.tolist()
    finally:
        runner.close()
        runner.join(15)


def test_other_settings_end_the_replay(backend: Backend) -> None:
    """The page would stay without tensors whatever is chosen."""
    config = small()
    runner = LiveRunner(config, lambda c: build_lanes(c, None if c.dry else backend), replay_to=20)
    try:
        until(lambda: runner.latest().state == "paused")
        other = config.replace({"paged.block_size": 8})
        assert runner.apply(other) == ["paged.block_size"]
        until(lambda: runner.latest().config == other, 60)
        assert not runner.latest().replayed
    finally:
        runner.close()
        runner.join(15)


def test_a_dry_run_is_replayed_as_it_is(start) -> None:
    runner = start(replay_to=30)
    until(lambda: runner.latest().state == "paused")
    assert not runner.latest().replayed
    assert runner.config == dry()
    again = start(replay_to=0)
    until(lambda: again.latest().state == "paused")
    assert again.latest().step == 0
    for view in again.latest().lanes.values():
        assert_same(
            view.snapshot,
            again.past(0)
            .result(15)
            .lanes["paged" if view.snapshot.paged else "contiguous"]
            .snapshot,
        )
