"""LiveRunner: what a viewer sees, what the orders do, and what happens when a step goes wrong."""

from __future__ import annotations

import threading
from dataclasses import asdict, fields

import numpy as np
import pytest

from kvviz.build import build_lanes
from kvviz.errors import CapacityError, ConfigError
from kvviz.live.runner import FLAT_OUT, LiveRunner
from tests.helpers import small
from tests.live.support import hold, spin, until


def test_versions_and_steps_grow(start):
    """A viewer would see nothing new, or an older picture after a newer one."""
    runner = start()
    seen = [runner.latest()]
    while seen[-1].step < 200:
        until(lambda: runner.latest().version > seen[-1].version)
        seen.append(runner.latest())
    versions, steps = [p.version for p in seen], [p.step for p in seen]
    assert sorted(set(versions)) == versions
    assert sorted(steps) == steps
    assert {"contiguous", "paged"} == set(seen[-1].lanes)


def test_each_lane_is_shown_at_the_step_of_the_picture(start):
    """The lanes of one picture would be of different steps, and not comparable."""
    runner = start()
    until(lambda: runner.latest().step > 50)
    shown = runner.latest()
    assert {shown.step} == {view.snapshot.step for view in shown.lanes.values()}
    assert {shown.step - 1} == {int(view.series.step[-1]) for view in shown.lanes.values()}


def test_pause_holds_step_and_picture(start, builder):
    """Pause would not pause."""
    runner = start()
    until(lambda: runner.latest().step > 10)
    shown, steps = hold(runner), builder.steps
    spin(runner)
    assert runner.paused
    assert shown is runner.latest()
    assert steps == builder.steps


def test_start_goes_on_after_a_pause(start):
    """Play would not play."""
    runner = start()
    until(lambda: runner.latest().step > 10)
    step = hold(runner).step
    runner.start()
    until(lambda: runner.latest().step > step + 10 and runner.latest().state == "running")
    assert not runner.paused


def test_step_makes_one_step_and_stays_paused(start, builder):
    """The Step button would make none, or several, or set the run going."""
    runner = start()
    until(lambda: runner.latest().step > 10)
    hold(runner)
    for _ in range(5):
        before = builder.steps
        runner.step()
        until(lambda before=before: runner.latest().step == before + 1)
        spin(runner, 5)
        assert before + 1 == builder.steps
        until(lambda: runner.latest().state == "paused")


def test_steps_asked_for_at_once_are_all_made(start, builder):
    """Fast clicks on Step would be lost."""
    runner = start()
    until(lambda: runner.latest().step > 10)
    hold(runner)
    before = builder.steps
    for _ in range(7):
        runner.step()
    until(lambda: builder.steps >= before + 7)
    spin(runner)
    assert before + 7 == builder.steps


def test_the_paused_picture_is_of_the_last_step(start, builder):
    """The paused map would lag behind the engine, and Step would jump by several steps."""
    runner = start(speed=30.0)  # 33 ms a step: less than the time between two pictures
    behind = []
    for turn in range(12):
        runner.start()
        mark = builder.steps + 2 + turn % 4
        until(lambda mark=mark: builder.steps >= mark)
        behind.append(-hold(runner).step + builder.steps)
    assert behind == [0] * 12


def test_a_slow_runner_takes_a_new_speed_at_once(start, builder):
    """A run at a slow speed would sleep out its long wait before it goes faster."""
    runner = start(speed=0.01)
    until(lambda: builder.steps == 1)
    assert builder.steps == 1
    runner.set_speed(FLAT_OUT)
    until(lambda: builder.steps > 100)


def test_orders_at_a_slow_speed_leave_no_debt(start, builder):
    """Each script run sets the speed; after many of them the run would stand still for long."""
    runner = start(speed=0.5)
    for count in range(1, 12):
        until(lambda count=count: builder.steps >= count, 3)
        runner.set_speed(0.5 + count / 1000)
    runner.set_speed(100.0)
    steps = builder.steps
    until(lambda: builder.steps > steps + 10, 2)


def test_head_start_is_flat_out(start, builder):
    """The first picture would show an empty pool for a long time."""
    start(speed=0.01, head_start=40)
    until(lambda: builder.steps >= 40)
    assert builder.steps == 40


def test_head_start_is_shown_at_its_end(start, builder):
    """At a slow speed the viewer would look at the empty pool until the next step is due."""
    runner = start(speed=0.01, head_start=40)
    until(lambda: builder.steps >= 40)
    until(lambda: runner.latest().step == 40, 1)


def test_a_live_setting_goes_on_without_a_restart(start, builder):
    """Moving the rate would throw the run away."""
    runner = start()
    until(lambda: runner.latest().step > 20)
    config = runner.config.replace({"mix.rate": 1.5, "contiguous.fit": "best"})
    assert runner.apply(config) == []
    until(lambda: builder.built[0].config == config)
    step = builder.steps
    until(lambda: runner.latest().step > step)
    assert config == runner.latest().config
    assert len(builder.built) == 1


def test_the_same_settings_do_nothing(start, builder):
    """Each script run would leave a change in the events or restart."""
    runner = start()
    until(lambda: runner.latest().step > 5)
    assert runner.apply(runner.config) == []
    step = runner.latest().step
    until(lambda: runner.latest().step > step)
    changes = [e for e in builder.built[0].engines["paged"].recorder.events if e.kind == "change"]
    assert changes == []


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        ({"memory.slots": 1024}, ["memory.slots"]),
        ({"seed": 7}, ["seed"]),
        ({"seed": 7, "memory.slots": 256, "mix.rate": 1.0}, ["memory.slots", "seed"]),
    ],
)
def test_a_restart_setting_restarts_at_step_0(start, builder, changes, paths):
    """The pool would keep its old size, or the steps would go on counting."""
    runner = start()
    until(lambda: runner.latest().step > 20)
    hold(runner)
    config = runner.config.replace(changes)
    assert paths == runner.apply(config)
    until(lambda: len(builder.built) == 2 and runner.latest().step == 0)
    until(lambda: runner.latest().state == "paused")
    shown = runner.latest()
    assert config == shown.config == builder.built[1].config
    capacities = {view.snapshot.capacity for view in shown.lanes.values()}
    assert {config.memory.slots} == capacities
    assert builder.built[:1] == builder.closed


def test_a_picture_names_the_settings_it_was_made_with(start, builder):
    """The stamp would name a seed that does not reproduce the picture."""
    gate = threading.Event()

    def build(config):
        if builder.built:
            assert gate.wait(15)
        return builder(config)

    runner = start(build=build)
    until(lambda: runner.latest().step > 5)
    before = hold(runner)
    lanes = builder.built[0]
    step = lanes.step

    def step_while_settings_come() -> None:
        runner.apply(runner.config.replace({"seed": 99}))
        step()

    lanes.step = step_while_settings_come
    try:
        runner.step()
        until(lambda: runner.latest().step == before.step + 1)
        assert before.config.seed == runner.latest().config.seed
    finally:
        gate.set()


def test_reset_starts_anew_with_the_same_settings(start, builder):
    """Reset would go on, or with other settings."""
    runner = start()
    until(lambda: runner.latest().step > 20)
    hashed = {}
    hold(runner)
    while builder.steps < 60:
        runner.step()
        until(runner._commands.empty)
    until(lambda: runner.latest().step >= 60)
    hashed[runner.latest().step] = runner.latest().stream_hash
    runner.reset()
    until(lambda: len(builder.built) == 2 and runner.latest().step == 0)
    config, target = runner.config, next(iter(hashed))
    for _ in range(target):
        runner.step()
    until(lambda: runner.latest().step == target)
    assert config == runner.latest().config
    assert hashed == {target: runner.latest().stream_hash}


def test_a_fault_in_a_step_is_shown(start, builder):
    """The thread would die silently, or the page would lose its last picture."""
    runner = start()
    until(lambda: runner.latest().step > 20)
    builder.fault = RuntimeError("boom in all lanes")
    until(lambda: runner.latest().state == "failed")
    shown = runner.latest()
    assert "RuntimeError: boom in all lanes" in shown.message
    assert {"contiguous", "paged"} == set(shown.lanes)
    assert runner.alive


def test_after_a_fault_the_last_picture_stays(start, builder):
    """The picture would be of a half-made step: one lane a step ahead of the other."""
    runner = start()
    until(lambda: runner.latest().step > 20)
    before = hold(runner)
    builder.fault = RuntimeError("boom")
    runner.step()
    until(lambda: runner.latest().state == "failed")
    spin(runner, 3)
    shown = runner.latest()
    steps = {name: view.snapshot.step for name, view in shown.lanes.items()}
    assert dict.fromkeys(before.lanes, before.step) == steps


def test_reset_is_the_way_out_of_a_fault(start, builder):
    """One fault would end the session."""
    runner = start()
    until(lambda: runner.latest().step > 20)
    builder.fault = RuntimeError("boom")
    until(lambda: runner.latest().state == "failed")
    builder.fault = None
    runner.reset()
    until(lambda: len(builder.built) == 2 and runner.latest().state == "running")
    until(lambda: runner.latest().step > 20)
    assert (runner.latest().state, runner.latest().message) == ("running", "")


def test_reset_forgets_a_step_that_failed(start, builder):
    """A paused run would make a step by itself after the reset."""
    runner = start()
    until(lambda: runner.latest().step > 5)
    hold(runner)
    builder.fault = RuntimeError("boom")
    runner.step()
    until(lambda: runner.latest().state == "failed")
    builder.fault = None
    runner.reset()
    until(lambda: len(builder.built) == 2 and runner.latest().state == "paused")
    spin(runner)
    assert builder.steps == 0


@pytest.mark.parametrize("error", [ConfigError, CapacityError])
def test_an_error_at_build_shows_its_text(start, builder, error):
    """A person would not learn what to change."""
    builder.refuses = error("the pool is too large. Choose fewer slots.")
    runner = start()
    until(lambda: runner.latest().state == "failed")
    assert runner.latest().message == "the pool is too large. Choose fewer slots."
    builder.refuses = None
    assert runner.apply(runner.config.replace({"memory.slots": 256})) == ["memory.slots"]
    until(lambda: runner.latest().state == "running")
    assert runner.latest().message == ""


def test_an_error_at_a_restart_keeps_the_picture(start, builder):
    """A pool that does not fit would leave an empty page."""
    runner = start()
    until(lambda: runner.latest().step > 20)
    builder.refuses = CapacityError("no room")
    runner.apply(runner.config.replace({"memory.slots": 1024}))
    until(lambda: runner.latest().state == "failed")
    assert runner.latest().message == "no room"
    assert {512} == {view.snapshot.capacity for view in runner.latest().lanes.values()}


def test_close_ends_the_thread_and_gives_the_budget_back(backend):
    """Each visitor would leave a pool behind."""
    runner = LiveRunner(
        small({"engine.check_every": 16}), lambda c: build_lanes(c, backend), speed=FLAT_OUT
    )
    until(lambda: runner.latest().step > 20)
    assert backend.budget.used_bytes > 0
    runner.close()
    runner.join(15)
    assert not runner.alive
    assert not runner._thread.is_alive()
    assert backend.budget.used_bytes == 0
    assert runner.latest().state == "closed"


def test_it_sleeps_when_nobody_looks_and_wakes_for_a_look(start, builder):
    """A forgotten tab would burn a core for ever, or never come back."""
    runner = start(sleep_after=0.05)
    until(lambda: runner._state == "asleep")
    steps = builder.steps
    assert ("asleep", steps) == (runner._latest.state, builder.steps)
    runner.latest()
    until(lambda: runner.latest().step > steps + 5)
    assert runner.latest().state == "running"


def test_it_ends_by_itself_and_frees(start, builder):
    """A tab that was left open would keep its pool for ever."""
    runner = start(sleep_after=0.01, end_after=0.05)
    until(lambda: not runner.alive)
    runner.join(15)
    assert not runner._thread.is_alive()
    assert builder.built == builder.closed
    assert runner._latest.state == "closed"


def test_published_objects_do_not_change(start):
    """A viewer would read arrays that the thread is writing."""
    runner = start()
    until(lambda: runner.latest().step > 60)
    shown = runner.latest()
    before = {name: _arrays(view) for name, view in shown.lanes.items()}
    counters = {n: asdict(v.snapshot.counters) for n, v in shown.lanes.items()}
    hues, refusals = dict(shown.hues), {n: v.refusals for n, v in shown.lanes.items()}
    until(lambda: runner.latest().step > shown.step + 200)
    for name, view in shown.lanes.items():
        for key, array in _arrays(view).items():
            np.testing.assert_array_equal(before[name][key], array, err_msg=f"{name} {key}")
        assert counters[name] == asdict(view.snapshot.counters)
        assert refusals[name] == view.refusals
    assert hues == shown.hues


def _arrays(view) -> dict[str, np.ndarray]:
    parts = (view.snapshot, view.snapshot.columns, view.series)
    return {
        f"{type(part).__name__}.{f.name}": getattr(part, f.name).copy()
        for part in parts
        for f in fields(part)
        if isinstance(getattr(part, f.name), np.ndarray)
    }
