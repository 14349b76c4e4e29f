"""Records steps that were made before: a live run's, from what it keeps of them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from kvviz.engine.lanes import Lanes
from kvviz.errors import RecordingError
from kvviz.recording.files import MAX_UNPACKED_BYTES
from kvviz.recording.lane_tape import LaneTape
from kvviz.recording.schema import CLOCK
from kvviz.recording.tape import manifest_of, packed
from kvviz.records import Event, Snapshot


class Frame(NamedTuple):
    """A step: of each lane its snapshot and its checks (made, failed, the step of the last).
    looks: hue and pattern of its requests."""

    step: int
    lanes: Mapping[str, tuple[Snapshot, tuple[int, int, int]]]
    compared: int
    equal: int
    drawn: int
    looks: Mapping[int, int]


class PastTape:
    """Made by the thread that owns the lanes: what it needs of them is copied at once. `add` and
    `close` may be called by any thread, `add` in the order of the steps."""

    def __init__(self, lanes: Lanes, device: str, changes: tuple[int, ...] = ()) -> None:
        self._manifest = replace(manifest_of(lanes, device), changes=changes)
        engines = lanes.engines.items()
        self._series = {name: engine.recorder.series() for name, engine in engines}
        self._events: dict[str, list[Event]] = {n: list(e.recorder.events) for n, e in engines}
        self._taken = dict.fromkeys(lanes.engines, 0)
        self._tapes = {name: LaneTape() for name in lanes.engines}
        self._clock = {name: array("q") for name in CLOCK}
        self._looks: dict[int, int] = {}

    def add(self, frame: Frame) -> None:
        """Raises RecordingError when the recording grows larger than a reader would take."""
        for name, (shot, checks) in frame.lanes.items():
            self._tapes[name].add(shot, self._until(name, frame.step), checks)
        self._looks |= frame.looks
        now = (frame.step, frame.compared, frame.equal, frame.drawn)
        for column, value in zip(self._clock.values(), now, strict=True):
            column.append(value)
        if sum(tape.bytes_unpacked for tape in self._tapes.values()) > MAX_UNPACKED_BYTES * 3 // 4:
            raise RecordingError(
                f"The recording has grown too large at step {frame.step:,}. Record the run anew "
                "with python -m kvviz run --record-every, which leaves steps out."
            )

    def close(self, shown: int = -1) -> bytes:
        """The file; it opens at the step `shown`."""
        rest = {name: self._events[name][at:] for name, at in self._taken.items()}
        manifest = replace(self._manifest, shown=shown)
        return packed(manifest, self._clock, self._tapes, self._series, rest, self._looks)

    def _until(self, lane: str, step: int) -> list[Event]:
        """Events that were not taken yet, of steps whose picture is that of `step` or older."""
        events, at = self._events[lane], self._taken[lane]
        end = bisect_left(events, step, lo=at, key=lambda event: event.step)
        self._taken[lane] = end
        return events[at:end]
