"""A live run's kept steps as a recording: the same memory, and the step that was looked at."""

from __future__ import annotations

import pytest

from kvviz.build import build_lanes
from kvviz.errors import KvvizError
from kvviz.live.hues import Follower, HueBook
from kvviz.live.kept import Kept, Shelf, keep
from kvviz.live.replayed import Replay
from kvviz.live.runner import LiveRunner
from kvviz.recording.files import unpack
from tests.engine.test_history import assert_same
from tests.live.support import dry, hold, until


@pytest.fixture
def runner():
    runner = LiveRunner(dry({"mix.rate": 0.8}), build_lanes, head_start=90)
    until(lambda: runner.latest().step >= 90)
    hold(runner)
    yield runner
    runner.close()
    runner.join(15)


def test_a_saved_run_is_the_run(runner: LiveRunner) -> None:
    """A recording of a live run would show another memory than the page did, or other colours."""
    made = keep(runner, 40)
    recording = unpack(made.data)
    last = runner.latest().last
    assert recording.steps.tolist() == list(range(1, last + 1))
    assert (made.first, made.last, made.shown, recording.manifest.shown) == (1, last, 40, 40)
    replay = Replay(recording)
    for step in (1, 40, 63, 64, 65, last):
        then = runner.past(step).result(15)
        again = replay.at(recording.at(step))
        assert (then.step, then.compared, then.equal) == (again.step, again.compared, again.equal)
        assert then.hues.items() <= again.hues.items()
        for name, view in then.lanes.items():
            assert_same(view.snapshot, again.lanes[name].snapshot)
            assert view.refusals == again.lanes[name].refusals
            assert view.checks_made == again.lanes[name].checks_made
    assert len(then.hues) > 3
    events = runner.ask(lambda lanes, *_: list(lanes.engines["paged"].recorder.events)).result(15)
    assert events == list(recording.events("paged"))


def test_a_run_that_nobody_watched_has_the_colours_of_a_live_one(runner: LiveRunner) -> None:
    """A recording made by a command would not look like the page that its settings lead to."""
    lanes, colours = build_lanes(dry({"mix.rate": 0.8}), history=100), Follower(HueBook())
    for _ in range(90):
        lanes.step()
        colours.step(lanes)
    looks = colours.book.looks
    assert len(set(looks.values())) > 10
    for step in (1, 30, 60, 90):
        assert runner.past(step).result(15).hues.items() <= looks.items()


@pytest.mark.parametrize("look", [-1, 60, 1 << 20])
def test_a_look_that_no_map_has_is_another(runner: LiveRunner, look: int) -> None:
    """It would be drawn past the end of the palette."""
    recording = unpack(keep(runner, 40).data)
    whose = int(recording.snapshot("paged", 39).seq_id[0])
    assert whose in recording.looks
    recording.looks[whose] = look
    assert 0 <= Replay(recording).at(39).hues[whose] < 60


def test_a_step_that_is_not_kept_opens_the_nearest(runner: LiveRunner) -> None:
    assert keep(runner, 10**6).shown == runner.latest().last
    assert keep(runner, 0).shown == 1


def test_a_recording_says_what_was_changed_by_hand(runner: LiveRunner) -> None:
    """Settings and seed alone would not lead to it, and nobody would know."""
    runner.add(64)
    until(lambda: runner.latest().changes)
    step = runner.latest().changes[0]
    runner.step()
    until(lambda: runner.latest().step == step + 1)
    replay = Replay(unpack(keep(runner, step).data))
    assert replay.at(step).changes == (step,)
    assert replay.at(step - 2).changes == ()


def test_nothing_to_save_is_told() -> None:
    runner = LiveRunner(dry(), build_lanes, replay_to=0)
    try:
        until(lambda: runner.latest().state == "paused")
        with pytest.raises(KvvizError, match="No step was made yet"):
            keep(runner, 0)
    finally:
        runner.close()
        runner.join(15)


def test_the_shelf_forgets_the_oldest() -> None:
    """Saved runs would fill the server's memory."""
    shelf = Shelf(most=3, most_bytes=100)
    names = [shelf.put(Kept(bytes(30), 1, 9, 4)) for _ in range(4)]
    assert [shelf.get(name) is None for name in names] == [True, False, False, False]
    big = shelf.put(Kept(bytes(60), 1, 9, 4))
    assert [shelf.get(name) is None for name in [*names, big]] == [True, True, True, False, False]
    with pytest.raises(KvvizError, match="this server keeps up to"):
        shelf.put(Kept(bytes(101), 1, 9, 4))
    assert shelf.get(big) is not None
    assert shelf.get("nothing") is None
