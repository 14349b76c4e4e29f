"""Random small runs: what must hold at every step, whatever the settings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.build import Backend
from kvviz.config import RunConfig
from kvviz.engine.engine import Engine
from kvviz.engine.sequence import Sequence
from kvviz.records import FRAGMENTED, HOLE, REFUSALS, RESERVED, SIBLINGS, Counters, Snapshot
from tests.helpers import events, lanes, run_steps, small
from tests.strategies import run_configs

STEPS = 200
MONOTONE = ("arrived", "admitted", "finished", "preempted", "dropped", "recomputed", "generated",
            "slots_moved", "passes")  # fmt: skip
EVERY = ("contiguous", "paged", "cells")
STEADFAST = ("contiguous", "paged", "buddy", "prefix")


def check_step(engine: Engine, before: Counters) -> Counters:
    """Everything that holds after any step; the counters after it."""
    engine.layout.check()
    shot = engine.snapshot()
    shot.check()
    c, run = shot.counters, engine.config.engine
    assert c.arrived == c.waiting + c.running + c.finished + c.dropped
    assert c.admitted == c.running + c.finished + c.preempted
    assert c.dropped <= c.refusals <= c.arrived
    assert c.running <= run.max_running
    assert c.waiting <= run.queue_limit + c.preempted + c.arrived
    assert all(getattr(before, name) <= getattr(c, name) for name in MONOTONE)
    assert c.generated - before.generated <= run.max_running
    assert c.passes - before.passes <= run.token_budget
    assert (c.passes > before.passes) >= (c.running > 0)
    saved = (np.maximum(shot.columns.refs, 1) - 1) * shot.columns.size
    held = int(shot.seq_held.sum()) - int(saved[shot.columns.owner >= 0].sum())
    out_of_reach = int(shot.columns.size[shot.columns.owner == RESERVED].sum())
    assert held + shot.free + out_of_reach == shot.capacity
    assert ((shot.seq_used <= shot.seq_held) & (shot.seq_used <= shot.seq_life)).all()
    assert set(shot.seq_id.tolist()) == set(shot.columns.owner.tolist()) - {
        HOLE,
        RESERVED,
    } | shared(shot)
    return c


def shared(shot: Snapshot) -> set[int]:
    """Requests that own no row, for others that are older hold the same blocks."""
    mine = set(shot.seq_id.tolist()) - set(shot.columns.owner.tolist())
    return mine if int(shot.columns.refs.max()) > 1 else set()


def idle_head(engine: Engine) -> Sequence | None:
    """The head of the queue if nothing runs and it fits: the next step must admit it."""
    if engine.scheduler.running or not engine.scheduler.waiting:
        return None
    head = engine.scheduler.waiting[0]
    return head if engine.layout.question(head.request, head.tokens).admitted else None


@settings(max_examples=25)
@given(run_configs())
def test_invariants(run: RunConfig) -> None:
    """Some setting makes a lane lose a request, overrun a limit, or break its memory's map."""
    with lanes(run, names=EVERY) as built:
        before = {name: Counters() for name in built.engines}
        for step in range(STEPS):
            heads = [idle_head(engine) for engine in built.engines.values()]
            built.step()
            assert {head.admitted for head in heads if head} <= {step}
            for name, engine in built.engines.items():
                before[name] = check_step(engine, before[name])
        assert before["paged"].refused[FRAGMENTED] == 0
        assert before["cells"].refused[FRAGMENTED] == 0
        for name, engine in built.engines.items():
            check_events(engine, before[name])


def check_events(engine: Engine, counters: Counters) -> None:
    """The events tell the same story as the counters."""
    counted = {kind: len(events(engine, kind)) for kind in
               ("arrive", "admit", "finish", "preempt", "drop", "refuse")}  # fmt: skip
    counted["arrive"] += sum(c >= SIBLINGS for c in every_id(engine))
    counted["admit"] += len(events(engine, "fork"))
    assert counted == {"arrive": counters.arrived, "admit": counters.admitted,
                       "finish": counters.finished, "preempt": counters.preempted,
                       "drop": counters.dropped, "refuse": counters.refusals}  # fmt: skip
    kinds = [e.verdict for e in events(engine, "refuse")]
    assert {kind: kinds.count(kind) for kind in REFUSALS} == counters.refused
    given_up = sum(e.slots for e in events(engine, "preempt"))
    saved = sum(e.slots for e in events(engine, "swap_out"))
    assert given_up == counters.recomputed + saved
    assert sum(e.slots for e in events(engine, "move")) == counters.slots_moved
    assert sum(e.slots for e in events(engine, "copy")) == counters.copied
    assert sum(e.slots for e in events(engine, "share")) == counters.cached
    steps = [e.step for e in engine.recorder.events]
    assert steps == sorted(steps)
    lives = {e.request: e.slots for e in events(engine, "arrive")}
    assert all(e.slots == lives[e.request % SIBLINGS] for e in events(engine, "finish"))
    if engine.config.engine.queue == "skip":
        return
    first = [e.request for e in events(engine, "admit") if e.request < SIBLINGS]
    assert [r for i, r in enumerate(first) if r not in first[:i]] == sorted(set(first))


def every_id(engine: Engine) -> set[int]:
    """Every request that the lane has seen, siblings included."""
    seen = {e.request for e in engine.recorder.events}
    return seen | {s.request.id for s in engine.scheduler.waiting}


@settings(max_examples=15)
@given(run_configs())
def test_series_and_snapshot_agree(run: RunConfig) -> None:
    """The chart and the map show two different pools."""
    with lanes(run, names=EVERY) as built:
        for _ in range(40):
            built.step()
            for engine in built.engines.values():
                shot, series = engine.snapshot(), engine.recorder.series(1)
                row = [int(v[0]) for v in (series.step, series.free, series.admissible,
                                           series.written, series.running, series.waiting,
                                           series.generated)]  # fmt: skip
                assert row == [shot.step - 1, shot.free, shot.admissible,
                               int(shot.columns.used.sum()), shot.counters.running,
                               shot.counters.waiting, shot.counters.generated]  # fmt: skip


@settings(max_examples=20)
@given(run_configs(), st.booleans())
def test_a_refusal_stands_until_something_is_freed(run: RunConfig, reconfigured: bool) -> None:
    """A head that waits is not asked for though there is room for it now, or the curves keep an
    older need."""

    def told(ask_each_step: bool) -> list[object]:
        with lanes(run, names=STEADFAST) as built:
            for engine in built.engines.values() if ask_each_step else ():
                engine.scheduler._stands = lambda refusal: False
            run_steps(built, STEPS // 2)
            if reconfigured:
                built.reconfigure(run.replace({"paged.watermark": 0.0, "engine.queue": "skip"}))
            run_steps(built, STEPS // 2)
            return [
                (list(e.recorder.events), [c.tolist() for c in vars(e.recorder.series()).values()
                                           if isinstance(c, np.ndarray)], e.snapshot().head)
                for e in built.engines.values()
            ]  # fmt: skip

    assert told(False) == told(True)


def outputs(run: RunConfig, backend: Backend, name: str, steps: int = 120) -> dict[int, bytes]:
    """What one lane alone has answered; nothing is compared and forgotten."""
    with lanes(run, backend, (name,)) as built:
        run_steps(built, steps)
        return dict(built.engines[name].outputs)


@pytest.mark.parametrize("ends", ["mix", "model"])
def test_a_seed_fixes_the_answers(ends: str, backend: Backend) -> None:
    """Two runs of one seed differ, or another seed changes nothing."""
    run = small({"engine.temperature": 0.8, "engine.ends": ends})
    once = outputs(run, backend, "paged")
    assert len(once) > 10
    assert outputs(run, backend, "paged") == once
    assert outputs(replace(run, seed=2), backend, "paged") != once


def test_preemption_changes_no_answer(backend: Backend) -> None:
    """A request that was computed anew goes on with other tokens than it had generated."""
    tight = small({"memory.slots": 160, "contiguous.reservation": "exact",
                   "paged.block_size": 4, "engine.temperature": 0.8})  # fmt: skip
    with lanes(tight, backend, EVERY) as built:
        run_steps(built, 150)
        again = {n: {e.request for e in events(engine, "preempt")} & set(ids_done(engine))
                 for n, engine in built.engines.items()}  # fmt: skip
        assert all(again.values())
        roomy = outputs(replace(tight, memory=small({"memory.slots": 4096}).memory), backend,
                        "paged", 150)  # fmt: skip
    for name in EVERY:
        mine = outputs(tight, backend, name, 150)
        both = mine.keys() & roomy.keys()
        assert again[name] & both
        assert {r: mine[r] for r in both} == {r: roomy[r] for r in both}


def ids_done(engine: Engine) -> list[int]:
    return [e.request for e in events(engine, "finish")]


def test_dropped_request_is_forgotten(backend: Backend) -> None:
    """A long run in refuse mode leaks the tokens of every preempted request it dropped."""
    run = small({"memory.slots": 160, "engine.queue": "refuse", "paged.block_size": 4,
                 "mix.rate": 1.0})  # fmt: skip
    with lanes(run, backend, ("paged",)) as built:
        run_steps(built, 150)
        engine = built.engines["paged"]
        dropped = {e.request for e in events(engine, "drop")}
        gone = dropped & {e.request for e in events(engine, "preempt")}
        assert gone
        for request in gone:
            with pytest.raises(KeyError):
                engine.forward.text(request)
