"""A recording in memory, as it was made or loaded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kvviz.engine.recorder import Series
from kvviz.errors import KvvizError, RecordingError
from kvviz.recording.lane_record import LaneRecord, require
from kvviz.recording.manifest import Manifest
from kvviz.recording.schema import LOOKS, LOOKS_NAME
from kvviz.recording.tables import Table
from kvviz.records import Event, Snapshot


class Clock(NamedTuple):
    """What the lanes had in common after a step: requests compared, equal, drawn."""

    step: int
    compared: int
    equal: int
    drawn: int


class Recording:
    """config + Snapshots + Events + Series of every lane; nothing in it changes.

    Raises RecordingError when its tables do not belong together.
    """

    def __init__(self, manifest: Manifest, tables: dict[str, Table]) -> None:
        self.manifest = manifest
        self.config = manifest.config
        self.looks = _looks(tables.get(LOOKS_NAME))  # of requests, as they were shown live
        self._clock = tables["clock.parquet"]
        for name in Clock._fields:
            require(self._clock, name)
        try:
            self._lanes = {
                lane: LaneRecord(_of_lane(tables, lane), manifest.dropped.get(lane, 0))
                for lane in manifest.lanes
            }
        except (KeyError, ValueError) as error:
            raise damaged(error) from error
        counts = {lane.count for lane in self._lanes.values()} | {len(self._clock["step"])}
        if counts != {manifest.recorded} or not manifest.recorded:
            raise RecordingError("The recording is damaged: its lanes have different steps.")
        if (np.diff(self.steps) <= 0).any() or any(
            (lane.steps["step"] != self.steps).any() for lane in self._lanes.values()
        ):
            raise RecordingError("The recording is damaged: its steps do not rise, or differ.")

    @property
    def lanes(self) -> tuple[str, ...]:
        return tuple(self._lanes)

    @property
    def steps(self) -> np.ndarray:
        """The recorded steps, int64, rising."""
        return self._clock["step"]

    def at(self, step: int) -> int:
        """The index of the newest recorded step that is not after `step`."""
        return max(0, int(np.searchsorted(self.steps, step, side="right")) - 1)

    def snapshot(self, lane: str, index: int) -> Snapshot:
        """Raises IndexError outside of the recording, RecordingError when it is damaged."""
        try:
            found = self._lanes[lane].snapshot(index)
            found.check()
            _plausible(found, 2 * self.config.memory.slots)
        except (IndexError, KvvizError):
            raise
        except Exception as error:  # columns that contradict each other fail in many ways
            raise damaged(error) from error
        return found

    def events(self, lane: str) -> tuple[Event, ...]:
        """All events, oldest first."""
        return self._lanes[lane].events

    def series(self, lane: str) -> Series:
        """Of every step, whether its snapshot was recorded or not."""
        return self._lanes[lane].series

    def checks(self, lane: str, index: int) -> tuple[int, int, int]:
        """Map checks made and failed until then, and the step of the last one."""
        return self._lanes[lane].checks(index)

    def speed(self, lane: str, index: int) -> float:
        """Tokens a second of the lane's own time, over about the last 128 steps."""
        return self._lanes[lane].speed(index)

    def clock(self, index: int) -> Clock:
        return Clock(*(int(self._clock[name][index]) for name in Clock._fields))


def _plausible(s: Snapshot, most: int) -> None:
    """What a page goes by when it makes room for pictures and divides. Raises ValueError."""
    c = s.columns
    fine = {
        "capacity": 0 < s.capacity <= most,
        "grain": 0 < s.grain <= s.capacity,
        "slot_bytes": s.slot_bytes > 0,
        "admissible": 0 <= s.admissible <= s.capacity,
        "rows": bool((c.size > 0).all() and (c.used >= 0).all() and (c.refs >= 0).all()),
        "sequences": bool((s.seq_held >= 0).all() and (s.seq_used >= 0).all()),
        "queue": bool((s.waiting_need > 0).all()),
        "head": s.head is None or s.head.need > 0,
    }
    wrong = [name for name, good in fine.items() if not good]
    if wrong:
        raise ValueError(f"{', '.join(wrong)} can't be what it says at step {s.step}")


def damaged(error: BaseException) -> RecordingError:
    """What to say of a file that some parser stumbled over."""
    said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
    return RecordingError(f"The recording is damaged: {said}. Record the run again.")


def _looks(table: Table | None) -> dict[int, int]:
    if table is None:
        return {}
    for name in LOOKS:
        require(table, name)
    return dict(zip(table["id"].tolist(), table["look"].tolist(), strict=True))


def _of_lane(tables: dict[str, Table], lane: str) -> dict[str, Table]:
    start = f"{lane}/"
    return {
        name.removeprefix(start).removesuffix(".parquet"): table
        for name, table in tables.items()
        if name.startswith(start)
    }
