"""What is kept of a run: one row of integers a step, and the events, both bounded rings."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from kvviz.records import Event

_TOGETHER = 64
FIELDS = ("step", "free", "admissible", "written", "running", "waiting", "generated", "need")


@dataclass(frozen=True)
class Series:
    """Columns int64 [steps], oldest first; `dropped` steps came before the first one.

    `need` is what the refused head of the queue asks for, 0 when nothing waits for memory.
    """

    step: np.ndarray
    free: np.ndarray
    admissible: np.ndarray
    written: np.ndarray
    running: np.ndarray
    waiting: np.ndarray
    generated: np.ndarray
    need: np.ndarray
    dropped: int = field(kw_only=True)


class Recorder:
    """Keeps the last `steps` rows (64 bytes each) and the last `events` events."""

    def __init__(self, steps: int = 16_384, events: int = 16_384) -> None:
        self._rows = np.zeros((steps, len(FIELDS)), np.int64)
        self._count = 0
        self._fresh: list[tuple[int, ...]] = []  # the newest rows, not in `_rows` yet
        self.events: deque[Event] = deque(maxlen=events)

    def add(self, row: tuple[int, ...], events: list[Event]) -> None:
        """`row` in the order of FIELDS."""
        self._fresh.append(row)
        if len(self._fresh) == _TOGETHER:
            self._put_down()
        if events:
            self.events.extend(events)

    def series(self, last: int | None = None, before: int | None = None) -> Series:
        """A copy of the newest `last` rows (all that are kept when None), of those of steps
        below `before` if that is given."""
        self._put_down()
        kept = min(self._count, len(self._rows))
        end = self._count
        if before is not None and kept:
            newest = int(self._rows[(end - 1) % len(self._rows), 0])
            skipped = min(max(0, newest + 1 - before), kept)
            end, kept = end - skipped, kept - skipped
        last = kept if last is None else min(last, kept)
        index = np.arange(end - last, end) % len(self._rows)
        rows = self._rows[index]
        return Series(*(np.ascontiguousarray(c) for c in rows.T), dropped=end - last)

    def _put_down(self) -> None:
        """One row at a time would cost as much as the step itself."""
        if not self._fresh:
            return
        end = self._count + len(self._fresh)
        fresh = np.array(self._fresh[-len(self._rows) :], np.int64)
        self._rows[np.arange(end - len(fresh), end) % len(self._rows)] = fresh
        self._count = end
        self._fresh.clear()
