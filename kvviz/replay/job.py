"""A replay in a thread of its own, so that a page stays responsive."""

from __future__ import annotations

import threading
from typing import Any

from kvviz.errors import KvvizError
from kvviz.records import Snapshot
from kvviz.replay.lanes import LaneSpec
from kvviz.replay.load import Load
from kvviz.replay.replay import Progress, replay, replay_report, snapshot_at


class ReplayJob:
    """`report` is None until all is done, and stays so when it was cancelled or failed."""

    def __init__(self, load: Load, specs: list[LaneSpec], slot_bytes: int) -> None:
        self.load, self.specs, self.slot_bytes = load, specs, slot_bytes
        self.progress = Progress(0, load.rows * len(specs), None, specs[0].name)
        self.report: dict[str, Any] | None = None
        self.error = ""
        self.cancelled = False
        self._thread = threading.Thread(target=self._run, name="replay", daemon=True)

    def start(self) -> ReplayJob:
        self._thread.start()
        return self

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def cancel(self) -> None:
        """It stops at the next look at the clock."""
        self.cancelled = True

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            results = replay(self.load, self.specs, self.slot_bytes, self._told)
            if not self.cancelled:
                self.report = replay_report(self.load, self.specs, results, self.slot_bytes)
        except KvvizError as error:
            self.error = str(error)
        except Exception as error:  # a thread's traceback would be seen by nobody
            self.error = f"the replay stopped: {type(error).__name__}: {error}"
            raise

    def _told(self, progress: Progress) -> bool:
        self.progress = progress
        return not self.cancelled


class MapJob:
    """The memory of one lane after a step, found in a thread: it is served that far anew."""

    def __init__(self, load: Load, spec: LaneSpec, slot_bytes: int, step: int) -> None:
        self.name, self.step = spec.name, step
        self.snapshot: Snapshot | None = None
        self.cancelled = False
        self._args = (load, spec, slot_bytes, step)
        self._thread = threading.Thread(target=self._run, name="replay map", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def cancel(self) -> None:
        self.cancelled = True

    def _run(self) -> None:
        found = snapshot_at(*self._args, lambda _done: not self.cancelled)
        self.snapshot = None if self.cancelled else found
