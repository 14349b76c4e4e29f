"""Whole runs: dry = real, lanes equal, seeds reproduce, the control reads zero."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.build import Backend, build_lanes
from kvviz.engine.lanes import Lanes
from kvviz.errors import CapacityError
from kvviz.metrics import balance_of, external_fragmentation
from kvviz.records import FRAGMENTED
from kvviz.workloads.presets import preset_config
from tests.helpers import DRY_PRESETS, lanes, run_steps, small

CONFIGS = {
    "default": {},
    "best": {"contiguous.fit": "best", "paged.block_size": 1},
    "next-max": {"contiguous.fit": "next", "contiguous.reservation": "max"},
    "exact-moves": {"contiguous.reservation": "exact", "paged.block_size": 7},
    "exact-compacts": {
        "contiguous.reservation": "exact",
        "contiguous.compaction": "on_refusal",
        "paged.block_size": 32,
    },
    "compacts": {"contiguous.compaction": "on_refusal", "contiguous.fit": "worst"},
    "refuses": {"engine.queue": "refuse", "mix.arrivals": "bursts"},
    "closed": {"mix.arrivals": "closed", "mix.concurrency": 12},
}
STEPS = 220


def memory_of(run: Lanes) -> dict[str, list]:
    """Everything a run records of memory, without times."""
    found = {}
    for name, engine in run.engines.items():
        series = engine.recorder.series()
        columns = (series.free, series.admissible, series.written, series.waiting, series.need)
        found[name] = [*(c.tolist() for c in columns), list(engine.recorder.events)]
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_dry_equals_real_and_lanes_agree(name: str, backend: Backend) -> None:
    """A dry replay would show other memory than the tensors; or a layout changes the answers."""
    changes = {**CONFIGS[name], "engine.temperature": 0.8, "engine.check_every": 20}
    with lanes(small(changes), backend) as real, lanes(small({**changes, "dry": True})) as dry:
        run_steps(real, STEPS)
        run_steps(dry, STEPS)
        assert memory_of(real) == memory_of(dry)
        assert real.stream.hash == dry.stream.hash
        assert real.comparison.compared > 20
        assert real.comparison.equal == real.comparison.compared
        for engine in real.engines.values():
            assert engine.checks_made == STEPS // 20
            assert engine.checks_failed == 0
    assert backend.budget.used_bytes == 0


def test_the_configs_do_what_they_are_named_for() -> None:
    """The matrix above would compare runs in which nothing moves or is preempted."""
    with lanes(small({**CONFIGS["exact-moves"], "dry": True})) as run:
        run_steps(run, STEPS)
        assert run.engines["contiguous"].counters().slots_moved > 0
        assert run.engines["contiguous"].counters().preempted > 0
    with lanes(small({**CONFIGS["compacts"], "dry": True})) as run:
        run_steps(run, STEPS)
        assert run.engines["contiguous"].counters().slots_moved > 0


def test_two_runs_in_one_process_do_not_meet(backend: Backend) -> None:
    """Something that belongs to the process (a block size, a seed) would leak between them."""
    first, second = small({"paged.block_size": 4}), small({"paged.block_size": 64, "seed": 2})
    with lanes(first, backend) as alone:
        run_steps(alone, 80)
        expected = memory_of(alone)
    with lanes(first, backend) as one, lanes(second, backend) as other:
        for _ in range(80):
            one.step()
            other.step()
        assert memory_of(one) == expected
        assert one.stream.hash != other.stream.hash


def test_the_control_reads_zero_at_every_step() -> None:
    """If the control fragments, the gauge is painted."""
    with lanes(preset_config("control").replace({"dry": True})) as run:
        run_steps(run, 3000)
        for engine in run.engines.values():
            series = engine.recorder.series()
            shares = [
                external_fragmentation(int(f), int(a))
                for f, a in zip(series.free, series.admissible, strict=True)
            ]
            assert {0.0, None} >= set(shares)
            assert engine.counters().false_refusals == 0
            assert engine.finished > 100


def test_the_default_preset_shows_the_point() -> None:
    """Contiguous refuses although enough is free; paged never does."""
    with lanes(preset_config("chat-and-documents").replace({"dry": True})) as run:
        run_steps(run, 2000)
        refused = {n: e.counters().refused[FRAGMENTED] for n, e in run.engines.items()}
        assert refused["contiguous"] > 20
        assert refused["paged"] == 0
        series = run.engines["contiguous"].recorder.series()
        assert (series.free - series.admissible).max() > 8192 / 4


@pytest.mark.parametrize("preset", DRY_PRESETS)
def test_every_preset_keeps_its_books(preset: str) -> None:
    """Counters that do not add up, rows that do not tile the pool."""
    with lanes(preset_config(preset).replace({"dry": True})) as run:
        for _ in range(10):
            run_steps(run, 40)
            for engine in run.engines.values():
                engine.layout.check()
                shot = engine.snapshot()
                shot.check()
                c = shot.counters
                assert c.arrived == c.waiting + c.running + c.finished + c.dropped
                assert shot.free == engine.layout.free
                assert balance_of(shot).balanced
                assert np.all(shot.seq_used <= shot.seq_held)


def test_a_new_mix_changes_what_comes_after(backend: Backend) -> None:
    """A slider would restart the run, or change requests that have arrived already."""
    before = small()
    after = before.replace({"mix.prompt_mean": 60, "mix.rate": 0.1})
    with lanes(before, backend) as run:
        run_steps(run, 60)
        taken = run.stream.hash
        run.reconfigure(after)
        assert run.stream.hash == taken
        drawn = run.stream.drawn
        run_steps(run, 200)
        assert run.step_count == 260
        assert run.stream.drawn - drawn < 45
        assert run.comparison.equal == run.comparison.compared > 0


def test_a_snapshot_carries_what_its_layout_counts() -> None:
    """A layout's own counts would not reach the page, or change in a picture already taken."""
    with lanes(small({"dry": True})) as run:
        run_steps(run, 5)
        engine = run.engines["paged"]
        counts = {"cached_blocks": 3}
        engine.layout.extras = lambda: counts
        shot = engine.snapshot()
        counts["cached_blocks"] = 4
        assert shot.extras == {"cached_blocks": 3}


def test_a_request_ended_by_hand_ends_with_its_next_token() -> None:
    """The button would do nothing, or the lanes' outputs be called unequal."""
    run = build_lanes(small({"dry": True, "mix.output_mean": 60}))
    run_steps(run, 20)
    request = run.engines["paged"].scheduler.running[-1].request.id
    assert run.finish(request)
    run_steps(run, 2)
    for engine in run.engines.values():
        kinds = [e.kind for e in engine.recorder.events if e.request == request]
        assert "change" in kinds
        assert kinds[-1] in ("finish", "refuse", "change")
        engine.layout.check()
    assert not run.finish(10**6)


def test_a_request_added_by_hand_arrives_in_every_lane() -> None:
    """Lanes would serve different streams, or the run not be the same twice."""
    streams = []
    for _ in range(2):
        run = build_lanes(small({"dry": True}))
        run_steps(run, 30)
        request = run.add(77)
        run_steps(run, 60)
        for engine in run.engines.values():
            arrived = [e for e in engine.recorder.events if e.kind == "arrive"]
            assert [e.request for e in arrived] == list(range(len(arrived)))
            mine = next(e for e in arrived if e.request == request)
            assert (mine.step, mine.slots) == (30, 77)
            engine.layout.check()
        streams.append(run.stream.hash)
    assert streams[0] == streams[1]
    assert build_lanes(small({"dry": True})).add(10**9) == 0


@pytest.mark.parametrize(
    ("error", "said"),
    [(CapacityError("the GPU is full"), "the GPU is full"), (IndexError("9"), "IndexError: 9")],
)
def test_an_isolated_lane_stops_alone(error: Exception, said: str) -> None:
    """One lane's error would end the others, or a stopped lane's picture go on or vanish."""

    def fails(step: int) -> None:
        raise error

    run = build_lanes(small({"dry": True}))
    run.isolated = True
    run_steps(run, 20)
    stopped, other = run.engines["paged"], run.engines["contiguous"]
    before = stopped.snapshot()
    stopped.scheduler.schedule = fails
    run_steps(run, 10)
    assert stopped.fault == (20, said)
    assert list(run.going) == ["contiguous"]
    assert stopped.recorder.events[-1][:2] == (20, "change")
    assert stopped.recorder.events[-1].text == f"stopped: {said}"
    after = stopped.snapshot()
    assert (after.step, after.columns, after.counters) == (30, before.columns, before.counters)
    assert other.fault is None
    assert other.recorder.series().step.tolist() == list(range(30))
    other.scheduler.schedule = fails
    with pytest.raises(type(error)):
        run.step()


def test_without_isolation_the_first_error_ends_the_run() -> None:
    """A command would end well although a lane had failed."""

    def fails(step: int) -> None:
        raise IndexError("9")

    run = build_lanes(small({"dry": True}))
    run.engines["paged"].scheduler.schedule = fails
    with pytest.raises(IndexError):
        run.step()
