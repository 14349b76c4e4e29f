"""A fault in one lane: found within a step, named, and the other lanes go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from kvviz.build import Backend, build_lanes
from kvviz.config import RunConfig
from kvviz.engine.engine import Engine
from kvviz.engine.lanes import Lanes
from kvviz.errors import CapacityError
from kvviz.live.runner import LiveRunner
from kvviz.ui.frames import head
from kvviz.views.theme import THEMES
from tests.helpers import indices, lanes, run_steps, small
from tests.live.support import hold, until

NAN = float("nan")
BEGUN = 25  # steps made before


def longest(engine: Engine) -> int:
    """The running request that has written most."""
    return max(engine.scheduler.running, key=lambda s: s.written).request.id


def lose_a_key(engine: Engine) -> None:
    slot = int(indices(engine.layout, longest(engine))[2])
    engine.forward.store.view[0, 0, slot, 0, 0] = NAN


def lose_a_value(engine: Engine) -> None:
    slot = int(indices(engine.layout, longest(engine))[0])
    engine.forward.store.view[-1, 1, slot, -1, -1] = NAN


def bend_the_table(engine: Engine) -> None:
    """To another request's first block."""
    mine, other = (s.request.id for s in engine.scheduler.running[:2])
    table = engine.layout.table
    table.array[table.row(mine), 0] = table.array[table.row(other), 0]


def send_the_table_away(engine: Engine) -> None:
    """To where there is no memory at all."""
    table = engine.layout.table
    table.array[table.row(longest(engine)), 0] = 1 << 30


def free_behind_its_back(engine: Engine) -> None:
    """What a request holds is given back while it runs."""
    layout, request = engine.layout, longest(engine)
    if hasattr(layout, "_allocator"):
        layout._allocator.free(layout._rows.region(layout.table.row(request)))
    elif hasattr(layout, "_pool"):
        layout._pool.drop(layout._ids(layout.table.row(request))[:1])
    elif hasattr(layout, "_ranges"):
        layout._ranges.pool.drop(layout.frames(request)[:1])
    else:
        layout._owner[layout.slots(request)] = -1


def free_twice(engine: Engine) -> None:
    """The same request is released a second time when it finishes."""
    engine.layout.release(longest(engine))


def run_out_of_memory(engine: Engine) -> None:
    def forward(*_: object) -> np.ndarray:
        raise CapacityError("the device has no room for the step. Choose fewer slots.")

    forward.check, forward.close = engine.forward.check, engine.forward.close
    engine.forward = forward


def break_a_step(engine: Engine) -> None:
    def schedule(_step: int) -> list:
        raise IndexError("index 9 is out of bounds")

    engine.scheduler.schedule = schedule


# What is done to a lane, and words of the message
FAULTS: dict[str, tuple[Callable[[Engine], None], str]] = {
    "a key is NaN": (lose_a_key, "read K or V that is no number, in slots ["),
    "a value is NaN": (lose_a_value, "read K or V that is no number, in slots ["),
    "a bent table": (bend_the_table, "AssertionError: "),
    "a table to nowhere": (send_the_table_away, "AssertionError: "),
    "freed while it runs": (free_behind_its_back, "AssertionError: "),
    "freed twice": (free_twice, ""),
    "no memory": (run_out_of_memory, "the device has no room for the step."),
    "an exception": (break_a_step, "IndexError: index 9 is out of bounds"),
}


LAYOUTS = ("contiguous", "paged", "cells", "virtual")
OF_BOOKS = ("a bent table", "a table to nowhere", "freed while it runs", "freed twice")
CASES = [
    (fault, name) for fault in FAULTS for name in (LAYOUTS if fault in OF_BOOKS else ["paged"])
]


@pytest.fixture
def name() -> str:
    return "paged"


@pytest.fixture
def built(name: str, backend: Backend) -> Iterator[Lanes]:
    """The lane and another one, in the middle of their work; the map is not checked for long."""
    other = "tlsf" if name == "contiguous" else "contiguous"
    run = small({"engine.check_every": 1000, "memory.slots": 1536, "lanes": f"{name},{other}"})
    with lanes(run, backend) as two:
        run_steps(two, BEGUN)
        two.isolated = True
        yield two


@pytest.mark.parametrize(("fault", "name"), CASES)
def test_it_is_found_within_a_step_and_stops_its_lane_alone(
    fault: str, name: str, built: Lanes
) -> None:
    """A wrong answer would be shown as a right one, or one lane's fault would end them all."""
    act, words = FAULTS[fault]
    hurt = built.engines[name]
    (other,) = (e for e in built.engines.values() if e is not hurt)
    before = hurt.snapshot()
    act(hurt)
    built.step()
    assert hurt.fault is not None and hurt.fault.step == BEGUN
    assert words in hurt.fault.text
    done = other.finished
    run_steps(built, 25)
    assert built.going == {other.name: other}
    assert other.finished > done and (other.step_count, hurt.step_count) == (BEGUN + 26,) * 2
    shot = hurt.snapshot()
    assert (shot.step, shot.counters) == (BEGUN + 26, before.counters)
    assert np.array_equal(shot.columns.owner, before.columns.owner)
    assert [e.text for e in hurt.recorder.events][-1] == f"stopped: {hurt.fault.text}"


def test_the_same_fault_without_isolation_is_raised(built: Lanes, name: str) -> None:
    """A command or a test would go on with a lane that is broken."""
    built.isolated = False
    lose_a_key(built.engines[name])
    with pytest.raises(AssertionError, match="is no number"):
        built.step()


def test_what_the_stopped_lane_does_not_take_is_forgotten(built: Lanes, name: str) -> None:
    """Requests would be kept for it for ever."""
    break_a_step(built.engines[name])
    cursor = dict(built._cursor)
    forgot: list[int] = []
    built.stream.forget = forgot.append
    run_steps(built, 20)
    (other,) = built.going
    assert forgot[-1] == built._cursor[other] > cursor[name] == built._cursor[name]


def test_orders_pass_over_a_stopped_lane(built: Lanes, name: str) -> None:
    """A slider or a button would end the run."""
    break_a_step(built.engines[name])
    built.step()
    built.reconfigure(built.config.replace({"mix.rate": 1.0, "engine.queue": "skip"}))
    request = built.add(20)
    run_steps(built, 5)
    (other,) = built.going.values()
    assert request in {e.request for e in other.recorder.events}
    assert built.finish(other.scheduler.running[0].request.id)


def test_the_last_lane_is_not_stopped_alone(built: Lanes) -> None:
    """A clock would go on with nobody on it."""
    for engine in built.engines.values():
        break_a_step(engine)
    with pytest.raises(IndexError):
        built.step()


def test_a_runner_shows_the_fault_and_goes_on(backend: Backend) -> None:
    """The page would stand still, or say nothing; a reset would not bring the lane back."""
    made: list[Lanes] = []

    def build(config: RunConfig) -> Lanes:
        made.append(build_lanes(config, backend))
        return made[-1]

    runner = LiveRunner(small({"engine.check_every": 1000}), build, speed=200.0)
    try:
        until(lambda: runner.latest().step > 20)
        step = hold(runner).step
        runner.ask(lambda two, *_: lose_a_key(two.engines["paged"])).result(10)
        runner.start()
        until(lambda: runner.latest().step > step + 10)
        shown = runner.latest()
        assert shown.state == "running"
        assert (list(shown.stopped), shown.stopped["paged"].step) == (["paged"], step)
        told = head(shown, THEMES["light"])
        assert told["stopped"]["paged"].startswith(f"Paged stopped in step {step}: Assertion")
        assert "Paged" not in told["verdict"]["text"]
        back = runner.past(step - 1).result(10)
        assert back.stopped == {} and head(back, THEMES["light"])["stopped"] == {}
        runner.reset()
        until(lambda: not runner.latest().faults and runner.latest().step > 5)
        assert len(made) == 2 and list(runner.latest().lanes) == ["contiguous", "paged"]
    finally:
        runner.close()
        runner.join(15)
    assert backend.budget.used_bytes == 0
