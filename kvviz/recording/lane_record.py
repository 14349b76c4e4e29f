"""Reads one lane: snapshots are put together again from what changed."""

from __future__ import annotations

from dataclasses import fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from kvviz.engine.recorder import FIELDS, Series
from kvviz.errors import RecordingError
from kvviz.recording.changes import EMPTY, Rows, replaced, tokens_before, used_before
from kvviz.recording.schema import (
    CHECKS,
    COUNTS,
    EXTRA,
    HEAD,
    KEY,
    LANE_TABLES,
    LATER,
    ROWS,
    SCALARS,
)
from kvviz.recording.tables import Table
from kvviz.records import REFUSALS, Counters, Event, Snapshot, Verdict


class _State(NamedTuple):
    """The pool and the running requests after a recorded step."""

    at: int
    rows: Rows
    ids: np.ndarray
    used: np.ndarray


class LaneRecord:
    """One lane's tables. Raises ValueError or KeyError when they do not belong together."""

    def __init__(self, tables: dict[str, Table], dropped: int) -> None:
        self.steps = tables["steps"]
        self._tables = tables
        self._dropped = dropped
        self._state: _State | None = None
        self.count = len(self.steps["step"])
        heads, refusals = (f"head.{name}" for name in HEAD), (f"refused.{k}" for k in REFUSALS)
        for name in ("head", *heads, *refusals, "counts_cached", *SCALARS, *COUNTS, *CHECKS):
            require(self.steps, name)
        for name, columns in LANE_TABLES.items():
            if name != "steps":
                for column in columns:
                    require(tables[name], column)
        self._ends = {}
        for name in COUNTS:
            counts = np.maximum(self.steps[name], 0)
            self._ends[name] = np.cumsum(counts)
            if int(counts.sum()) != len(tables[name][next(iter(LANE_TABLES[name]))]):
                raise ValueError(f"{name} has another number of rows than its steps say")

    def snapshot(self, at: int) -> Snapshot:
        """The snapshot of the recorded step number `at`, 0 the first."""
        state = self._advance(at)
        steps, part = self.steps, self._slice("sequences", at)
        of = self._tables["sequences"]
        queue = self._slice("queue", self._written("queue", at))
        away = self._slice("turned_away", self._written("turned_away", at))
        return Snapshot(
            **{name: _plain(steps[name][at]) for name in SCALARS},
            **{name: _plain(steps[name][at]) for name in LATER if name in steps},
            columns=state.rows.columns(cached=bool(steps["counts_cached"][at])),
            seq_id=state.ids,
            seq_used=state.used,
            **{f"seq_{name}": of[name][part] for name in ("life", "held", "prompt", "since")},
            waiting_id=self._tables["queue"]["id"][queue],
            waiting_need=self._tables["queue"]["need"][queue],
            head=self._head(at),
            counters=self._counters(at),
            dropped_id=self._tables["turned_away"]["id"][away],
            extras={
                name.removeprefix(EXTRA): _plain(values[at])
                for name, values in steps.items()
                if name.startswith(EXTRA) and not np.isnan(values[at])
            },
        )

    def checks(self, at: int) -> tuple[int, int, int]:
        """Map checks made and failed so far, and the step of the last one."""
        made, failed, step = (int(self.steps[name][at]) for name in CHECKS)
        return made, failed, step

    def speed(self, at: int, steps: int = 128) -> float:
        """Tokens generated a second of this lane's own time, over about the last `steps`; 0 where
        the file does not count them."""
        generated = self.steps.get("counters.generated")
        if generated is None:
            return 0.0
        first = int(np.searchsorted(self.steps["step"], self.steps["step"][at] - steps))
        seconds = self.steps["seconds"][at] - self.steps["seconds"][first]
        return float((generated[at] - generated[first]) / seconds) if seconds > 0 else 0.0

    @cached_property
    def events(self) -> tuple[Event, ...]:
        """All of them, oldest first."""
        found = self._tables["events"]
        columns = [
            found[name] if isinstance(found[name], list) else found[name].tolist()
            for name in Event._fields
        ]
        return tuple(Event(*row) for row in zip(*columns, strict=True))

    @cached_property
    def series(self) -> Series:
        """Of every step, recorded or not; `dropped` steps came before the first one."""
        return Series(*(self._tables["series"][name] for name in FIELDS), dropped=self._dropped)

    def _advance(self, at: int) -> _State:
        """From the last state, or from the nearest step that stands alone."""
        if not 0 <= at < self.count:
            raise IndexError(f"{at} is none of the {self.count} recorded steps")
        state, alone = self._state, at // KEY * KEY
        if state is None or not alone <= state.at <= at:
            state = self._next(_State(alone - 1, EMPTY, *_nobody()))
        while state.at < at:
            state = self._next(state)
        self._state = state
        return state

    def _next(self, state: _State) -> _State:
        at = state.at + 1
        if at % KEY == 0:
            state = _State(state.at, EMPTY, *_nobody())
        part, of = self._slice("rows", at), self._tables["rows"]
        rows = Rows(*(of[name][part] for name in ROWS))
        rows = Rows(**{**vars(rows), "used": rows.used + used_before(state.rows, rows)})
        part, of = self._slice("sequences", at), self._tables["sequences"]
        ids = of["id"][part]
        used = of["used"][part] + tokens_before(state.ids, state.used, ids)
        return _State(at, replaced(state.rows, rows), ids, used)

    def _slice(self, name: str, at: int) -> slice:
        end = int(self._ends[name][at])
        return slice(end - max(int(self.steps[name][at]), 0), end)

    def _written(self, name: str, at: int) -> int:
        """The step, at or before this one, in which the list was written last."""
        counts = self.steps[name][at // KEY * KEY : at + 1]
        found = np.flatnonzero(counts >= 0)
        if not len(found):
            raise ValueError(f"{name} was never written")
        return at // KEY * KEY + int(found[-1])

    def _head(self, at: int) -> Verdict | None:
        kind = self.steps["head"][at]
        if not kind:
            return None
        return Verdict(kind, *(int(self.steps[f"head.{name}"][at]) for name in HEAD))

    def _counters(self, at: int) -> Counters:
        """A counter that this file does not know keeps its default."""
        known = {
            f.name: _plain(self.steps[f"counters.{f.name}"][at])
            for f in fields(Counters)
            if f"counters.{f.name}" in self.steps
        }
        refused = {kind: int(self.steps[f"refused.{kind}"][at]) for kind in REFUSALS}
        return Counters(**known, refused=refused)


def require(table: Table, column: str) -> None:
    """Raises RecordingError when the table lacks the column."""
    if column not in table:
        raise RecordingError(f"The recording is damaged: it has no column {column}.")


def _nobody() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(0, np.int64), np.zeros(0, np.int64)


def _plain(value: np.generic) -> Any:
    """A Python number; a whole float stays a float."""
    return value.item()
