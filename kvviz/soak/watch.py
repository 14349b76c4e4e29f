"""What must hold after every step of a lane, whatever its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kvviz.engine.engine import Engine
from kvviz.records import HOLE, RESERVED, Counters, Snapshot

_MONOTONE = ("arrived", "admitted", "finished", "preempted", "dropped", "generated",
             "slots_moved", "cached", "copied", "swapped", "bypassed", "passes")  # fmt: skip


class Seen(NamedTuple):
    """A lane after a step, and its counters before."""

    engine: Engine
    shot: Snapshot
    before: Counters

    @property
    def now(self) -> Counters:
        return self.shot.counters


def _held(seen: Seen) -> int:
    """Slots that requests hold; what several of them share counts once."""
    columns = seen.shot.columns
    again = (np.maximum(columns.refs, 1) - 1) * columns.size
    return int(seen.shot.seq_held.sum()) - int(again[columns.owner >= 0].sum())


def _out_of_reach(seen: Seen) -> int:
    columns = seen.shot.columns
    return int(columns.size[columns.owner == RESERVED].sum())


def _owners(seen: Seen) -> bool:
    """Who is on the map runs, and who runs is on it or holds what an older request has."""
    shot = seen.shot
    shown = set(shot.columns.owner.tolist()) - {HOLE, RESERVED}
    running = set(shot.seq_id.tolist())
    return shown == running or (shown < running and int(shot.columns.refs.max()) > 1)


def _series(seen: Seen) -> bool:
    """The chart's newest point and the map are of the same pool."""
    series, shot = seen.engine.recorder.series(1), seen.shot
    row = [int(column[0]) for column in (series.step, series.free, series.admissible,
                                         series.written, series.running, series.waiting,
                                         series.generated)]  # fmt: skip
    return row == [shot.step - 1, shot.free, shot.admissible, int(shot.columns.used.sum()),
                   seen.now.running, seen.now.waiting, seen.now.generated]  # fmt: skip


EQUATIONS: dict[str, Callable[[Seen], bool]] = {
    "arrived = waiting + running + finished + dropped": lambda s: (
        s.now.arrived == s.now.waiting + s.now.running + s.now.finished + s.now.dropped
    ),
    "admitted = running + finished + preempted": lambda s: (
        s.now.admitted == s.now.running + s.now.finished + s.now.preempted
    ),
    "dropped <= refused <= arrived": lambda s: s.now.dropped <= s.now.refusals <= s.now.arrived,
    "no counter falls": lambda s: all(getattr(s.before, n) <= getattr(s.now, n) for n in _MONOTONE),
    "recomputed falls by what was found, not below 0": lambda s: (
        s.now.recomputed >= 0
        and s.before.recomputed - s.now.recomputed <= s.now.cached - s.before.cached
    ),
    "held + free + out of reach = capacity": lambda s: (
        _held(s) + s.shot.free + _out_of_reach(s) == s.shot.capacity
    ),
    "admissible <= free": lambda s: s.shot.admissible <= s.shot.free,
    "written <= held, written <= life": lambda s: bool(
        (s.shot.seq_used <= s.shot.seq_held).all() and (s.shot.seq_used <= s.shot.seq_life).all()
    ),
    "the map shows who runs": _owners,
    "the chart shows what the map shows": _series,
}
CHECKS = len(EQUATIONS) + 2  # and those that layouts and snapshots make of themselves


class Watch:
    """Looks at the lanes of one round after each step."""

    def __init__(self) -> None:
        self.checked = 0
        self._before: dict[str, Counters] = {}

    def look(self, engine: Engine) -> Snapshot:
        """The snapshot that was looked at. Raises AssertionError, with the equation."""
        engine.layout.check()
        shot = engine.snapshot()
        shot.check()
        seen = Seen(engine, shot, self._before.get(engine.name, Counters()))
        for name, holds in EQUATIONS.items():
            assert holds(seen), f"{engine.name}: {name} does not hold: {shot.counters}"
        assert not engine.checks_failed, f"{engine.name}: map and tensors differ"
        self._before[engine.name] = shot.counters
        self.checked += CHECKS
        return shot
