"""The kept steps of a run as a recording, and the last few of those, by name.

The lanes' thread hands out a few steps at a time, so that the run goes on in between; the file is
written by whoever asked for it.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from kvviz.engine.lanes import Lanes
from kvviz.errors import KvvizError
from kvviz.live.past import Moment, Past
from kvviz.live.published import Published
from kvviz.live.runner import LiveRunner
from kvviz.recording.past_tape import Frame, PastTape

STEPS_AT_ONCE = 32  # some tens of milliseconds of the lanes' thread
_ANSWER_SECONDS = 30.0
SHELF = 16  # recordings
SHELF_BYTES = 256 << 20


@dataclass(frozen=True)
class Kept:
    """A recording's file; `first` and `last` are its steps, `shown` the one it opens at."""

    data: bytes
    first: int
    last: int
    shown: int

    @property
    def name(self) -> str:
        return f"kvviz-steps{self.first}-{self.last}"


def keep(runner: LiveRunner, shown: int) -> Kept:
    """Every step that this run keeps, as a recording that opens at `shown` (or the nearest).

    Waits for the runner's thread: never call it on an event loop. Raises KvvizError.
    """
    past, tape, first, last = _wait(runner.ask(_begin))
    shown = min(max(shown, first), last)
    for begin in range(first, last + 1, STEPS_AT_ONCE):
        for moment in _wait(runner.ask(_steps(past, begin, min(begin + STEPS_AT_ONCE, last + 1)))):
            tape.add(_frame(moment))
    return Kept(tape.close(shown), first, last, shown)


def _begin(lanes: Lanes, past: Past, newest: Published) -> tuple[Past, PastTape, int, int]:
    if past.last < 1:
        raise KvvizError("No step was made yet. Let the run go on, and save again.")
    tape = PastTape(lanes, newest.device or "dry", newest.changes)
    return past, tape, max(past.first, 1), past.last


def _steps(past: Past, first: int, stop: int) -> Any:
    def question(_lanes: Lanes, now: Past, _newest: Published) -> list[Moment]:
        if now is not past or now.first > first:
            raise KvvizError(
                "The run was started anew, or left its first steps behind, while it was being "
                "saved. Pause it, and save again."
            )
        return [past.moment(step) for step in range(first, stop)]

    return question


def _frame(moment: Moment) -> Frame:
    return Frame(
        moment.step,
        {name: (shot, moment.checks[name]) for name, shot in moment.shots.items()},
        moment.compared,
        moment.equal,
        moment.drawn,
        moment.hues,
    )


def _wait(future: Future[Any]) -> Any:
    try:
        return future.result(_ANSWER_SECONDS)
    except TimeoutError as error:
        raise KvvizError("The lanes are busy. Pause the run, and save again.") from error


class Shelf:
    """Recordings by a name that nobody guesses; the oldest are forgotten. Thread-safe."""

    def __init__(self, most: int = SHELF, most_bytes: int = SHELF_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._kept: OrderedDict[str, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, kept: Kept) -> str:
        """Its name. Raises KvvizError when it alone is more than there is room for."""
        if len(kept.data) > self._most_bytes:
            raise KvvizError(
                f"The recording has {len(kept.data) >> 20:,} MiB; this server keeps up to "
                f"{self._most_bytes >> 20:,} MiB. Record fewer steps with python -m kvviz run."
            )
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._kept[name] = kept
            while len(self._kept) > self._most or self._nbytes() > self._most_bytes:
                self._kept.popitem(last=False)
        return name

    def get(self, name: str) -> Kept | None:
        with self._lock:
            return self._kept.get(name)

    def _nbytes(self) -> int:
        return sum(len(kept.data) for kept in self._kept.values())
