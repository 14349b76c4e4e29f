"""Records lanes while they run: `take` after every step, `close` at the end."""

from __future__ import annotations

import platform
from array import array
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kvviz.engine.engine import Engine
from kvviz.engine.lanes import Lanes
from kvviz.engine.recorder import FIELDS, Series
from kvviz.errors import RecordingError
from kvviz.recording.files import MAX_UNPACKED_BYTES, pack
from kvviz.recording.lane_tape import LaneTape
from kvviz.recording.manifest import Manifest
from kvviz.recording.schema import CLOCK, EVENTS, LOOKS, LOOKS_NAME, SERIES
from kvviz.recording.tables import bytes_a_row, write_table
from kvviz.records import Event
from kvviz.report import run_report

_MOST_BYTES = MAX_UNPACKED_BYTES * 7 // 8  # a rest for what layouts count themselves


class Tape:
    """Every `every`-th step's snapshots; all events; the series of every step."""

    def __init__(self, lanes: Lanes, every: int = 1) -> None:
        if every < 1:
            raise RecordingError(f"--record-every {every}: 1 or more was expected.")
        self.every = every
        self._lanes = lanes
        self._tapes = {name: LaneTape() for name in lanes.engines}
        self._events: dict[str, list[Event]] = {name: [] for name in lanes.engines}
        self._seen = dict.fromkeys(lanes.engines, lanes.step_count)
        self._first = lanes.step_count
        self._bytes = 0
        self._clock = {name: array("q") for name in CLOCK}

    def take(self) -> None:
        """Call it after each step of the lanes. Raises RecordingError when the recording grows
        larger than a reader would take."""
        for name, engine in self._lanes.engines.items():
            found = _events_since(engine, self._seen[name])
            self._events[name] += found
            self._seen[name] = engine.step_count
            self._bytes += len(found) * bytes_a_row(EVENTS) + bytes_a_row(SERIES)
        if (self._lanes.step_count - self._first) % self.every == 0:
            self._snap()
        if self._bytes + sum(t.bytes_unpacked for t in self._tapes.values()) > _MOST_BYTES:
            raise RecordingError(
                f"The recording has grown too large at step {self._lanes.step_count:,}. Record "
                "fewer steps, or snapshots of fewer of them (--record-every)."
            )

    def _snap(self) -> None:
        lanes = self._lanes
        for name, engine in lanes.engines.items():
            checks = (engine.checks_made, engine.checks_failed, engine.checked_step)
            self._tapes[name].add(engine.snapshot(), self._events[name], checks)
            self._events[name] = []
        compared, equal = lanes.comparison.compared, lanes.comparison.equal
        now = (lanes.step_count, compared, equal, lanes.stream.drawn)
        for column, value in zip(self._clock.values(), now, strict=True):
            column.append(value)

    def close(
        self,
        device: str,
        report: dict[str, Any] | None = None,
        looks: Mapping[int, int] | None = None,
    ) -> bytes:
        """The whole recording as the bytes of a file.

        report: the numbers of the run where the caller has them already. looks: hue and pattern
        of each request.
        """
        if not self._clock["step"]:
            self._snap()  # shorter than `every`: the last step is better than none
        manifest = manifest_of(self._lanes, device, self.every, report)
        series = {name: e.recorder.series() for name, e in self._lanes.engines.items()}
        return packed(manifest, self._clock, self._tapes, series, self._events, looks)


def manifest_of(
    lanes: Lanes, device: str, every: int = 1, report: dict[str, Any] | None = None
) -> Manifest:
    """What the lanes say of themselves now; `packed` adds what the file holds."""
    return Manifest(
        config=replace(lanes.config, lanes=",".join(lanes.engines)),
        device=device,
        machine=f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        every=every,
        recorded=0,
        stream_hash=lanes.stream.hash,
        scaling=lanes.stream.scaling,
        dropped={},
        report=report or run_report(lanes, device),
    )


def packed(
    manifest: Manifest,
    clock: dict[str, array],
    tapes: dict[str, LaneTape],
    series: dict[str, Series],
    events: dict[str, list[Event]],
    looks: Mapping[int, int] | None = None,
) -> bytes:
    """The file. events: those after the last recorded step; looks: of requests, where they were
    shown."""
    members = {"clock.parquet": write_table(CLOCK, clock)}
    if looks:
        columns = {"id": array("q", looks.keys()), "look": array("i", looks.values())}
        members[LOOKS_NAME] = write_table(LOOKS, columns)
    for name, tape in tapes.items():
        of_steps = {field: getattr(series[name], field) for field in FIELDS}
        tables = tape.close(of_steps, events[name])
        members |= {f"{name}/{table}.parquet": data for table, data in tables.items()}
    dropped = {name: one.dropped for name, one in series.items()}
    return pack(replace(manifest, recorded=len(clock["step"]), dropped=dropped), members)


def _events_since(engine: Engine, step: int) -> list[Event]:
    """Events of that step and later ones, oldest first."""
    found = []
    for event in reversed(engine.recorder.events):
        if event.step < step:
            break
        found.append(event)
    return found[::-1]
