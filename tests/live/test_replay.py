"""A link leads to the same picture: the run is made anew, up to its step."""

from __future__ import annotations

from kvviz.build import Backend, build_lanes
from kvviz.live.runner import REPLAY_KEPT, LiveRunner
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


def test_a_long_replay_keeps_the_newest_steps(start) -> None:
    """It would take minutes, or nobody could look back from where it stands."""
    runner, whole = start(replay_to=REPLAY_KEPT + 200), start()
    until(lambda: runner.latest().state == "paused")
    newest = runner.latest()
    assert (newest.first, newest.last) == (201, REPLAY_KEPT + 200)
    until(lambda: whole.latest().step > REPLAY_KEPT + 200)
    assert newest.hues == whole.past(REPLAY_KEPT + 200).result(15).hues
    runner.start()
    until(lambda: runner.latest().step > newest.step + 5)


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
