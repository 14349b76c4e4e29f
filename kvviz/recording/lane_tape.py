"""Writes one lane: a snapshot goes in, what changed is kept."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np

from kvviz.recording.changes import EMPTY, Rows, new_rows, tokens_before, used_before
from kvviz.recording.schema import (
    COUNTERS,
    EXTRA,
    HEAD,
    KEY,
    LANE_TABLES,
    LATER,
    QUEUE,
    REAL,
    ROWS,
    SCALARS,
    SEQUENCES,
    STEPS,
    TURNED_AWAY,
    WORD,
)
from kvviz.recording.tables import TableWriter, bytes_a_row, write_table
from kvviz.records import Event, Snapshot

_NOBODY = np.zeros(0, np.int64)
_TABLES = {"rows": ROWS, "sequences": SEQUENCES, "queue": QUEUE, "turned_away": TURNED_AWAY}


class LaneTape:
    """`add` a snapshot for each recorded step, in order; `close` for the tables."""

    def __init__(self) -> None:
        self.steps = 0
        self.bytes_unpacked = 0
        self._rows, self._ids, self._used = EMPTY, _NOBODY, _NOBODY
        self._last: dict[str, tuple[np.ndarray, ...]] = {}
        self._writers = {name: TableWriter(columns) for name, columns in _TABLES.items()}
        self._events: list[Event] = []
        self._steps: dict[str, Any] = {
            name: [] if kind == WORD else array("d" if kind == REAL else "q")
            for name, kind in STEPS.items()
        }

    def add(
        self, snapshot: Snapshot, events: list[Event], checks: tuple[int, int, int] = (0, 0, -1)
    ) -> None:
        """events: those since the step before. checks: made, failed, the step of the last."""
        if self.steps % KEY == 0:
            self._rows, self._ids, self._used, self._last = EMPTY, _NOBODY, _NOBODY, {}
        counts = {
            "rows": self._add_rows(snapshot),
            "sequences": self._add_sequences(snapshot),
            "queue": self._if_new("queue", snapshot.waiting_id, snapshot.waiting_need),
            "turned_away": self._if_new("turned_away", snapshot.dropped_id),
        }
        for name, value in {**_small(snapshot, checks), **counts}.items():
            self._steps[name].append(value)
        self._add_extras(snapshot)
        self._events += events
        self.steps += 1
        self.bytes_unpacked += bytes_a_row(STEPS) + sum(
            max(counts[name], 0) * bytes_a_row(columns) for name, columns in _TABLES.items()
        )

    def close(self, series: dict[str, np.ndarray], events: list[Event]) -> dict[str, bytes]:
        """{name of the table: Parquet}. series: the columns of a Series, over all steps.
        events: those after the last recorded step."""
        self._events += events
        extras = {name: REAL for name in self._steps if name.startswith(EXTRA)}
        listed = {name: [getattr(event, name) for event in self._events] for name in Event._fields}
        return {
            **{name: writer.close() for name, writer in self._writers.items()},
            "steps": write_table({**STEPS, **extras}, self._steps),
            "series": write_table(LANE_TABLES["series"], series),
            "events": write_table(LANE_TABLES["events"], listed),
        }

    def _add_rows(self, snapshot: Snapshot) -> int:
        new, old = Rows.of(snapshot.columns), self._rows
        rows = new.take(new_rows(old, new))
        added = {**vars(rows), "used": rows.used - used_before(old, rows)}
        self._writers["rows"].add(**added)
        self._rows = new
        return len(rows.start)

    def _add_sequences(self, s: Snapshot) -> int:
        added = s.seq_used - tokens_before(self._ids, self._used, s.seq_id)
        self._writers["sequences"].add(
            id=s.seq_id, used=added, life=s.seq_life, held=s.seq_held, prompt=s.seq_prompt,
            since=s.seq_since,
        )  # fmt: skip
        self._ids, self._used = s.seq_id, s.seq_used
        return len(s.seq_id)

    def _if_new(self, name: str, *columns: np.ndarray) -> int:
        """The columns, if they are not those of the step before; else -1."""
        last = self._last.get(name)
        if last and all(np.array_equal(a, b) for a, b in zip(last, columns, strict=True)):
            return -1
        self._last[name] = columns
        self._writers[name].add(**dict(zip(_TABLES[name], columns, strict=True)))
        return len(columns[0])

    def _add_extras(self, snapshot: Snapshot) -> None:
        """NaN for every step in which a name is missing, before its first step too."""
        for name in snapshot.extras:
            if EXTRA + name not in self._steps:
                self._steps[EXTRA + name] = array("d", [np.nan] * self.steps)
        for name, values in self._steps.items():
            if name.startswith(EXTRA):
                values.append(snapshot.extras.get(name.removeprefix(EXTRA), np.nan))


def _small(s: Snapshot, checks: tuple[int, int, int]) -> dict[str, Any]:
    """Everything of a snapshot that is one value a step."""
    head = s.head
    return {
        **{name: getattr(s, name) for name in (*SCALARS, *LATER)},
        "counts_cached": s.columns.cached is not None,
        "head": head.kind if head else "",
        **{f"head.{name}": getattr(head, name) if head else 0 for name in HEAD},
        **{f"counters.{name}": getattr(s.counters, name) for name in COUNTERS},
        **{f"refused.{kind}": count for kind, count in s.counters.refused.items()},
        **dict(zip(("checks_made", "checks_failed", "checked_step"), checks, strict=True)),
    }
