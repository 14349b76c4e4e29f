"""A recorded step as a runner would have published it."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from kvviz.engine.recorder import Series
from kvviz.live.hues import HUES, PATTERNS, HueBook
from kvviz.live.published import WINDOW, LaneView, Published
from kvviz.recording.recording import Recording
from kvviz.records import Event

REPLAYED = "replayed"


class Replay:
    """Publications from a recording, in any order. A request has one colour in all of them: that
    which it had live, where the file has it."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._book = HueBook()
        self._hues = {i: h for i, h in recording.looks.items() if 0 <= h < HUES * PATTERNS}

    def at(self, index: int, window: int = WINDOW) -> Published:
        """The recorded step number `index`; its series hold the last `window` steps.

        Raises IndexError outside of the recording, RecordingError when it is damaged.
        """
        recording = self.recording
        clock, manifest = recording.clock(index), recording.manifest
        views = {lane: _view(recording, lane, index, window) for lane in recording.lanes}
        hues = self._book.update([view.snapshot for view in views.values()])
        self._hues = hues | self._hues  # the first colour is kept
        return Published(
            version=index,
            step=clock.step,
            state=REPLAYED,
            message="",
            config=recording.config,
            device=manifest.device,
            lanes=views,
            compared=clock.compared,
            equal=clock.equal,
            stream_hash=manifest.stream_hash,
            drawn=clock.drawn,
            scaling=manifest.scaling,
            hues=dict(self._hues),
            changes=tuple(step for step in manifest.changes if step <= clock.step),
        )


def _view(recording: Recording, lane: str, index: int, window: int) -> LaneView:
    step = int(recording.steps[index])
    made, failed, checked = recording.checks(lane, index)
    return LaneView(
        snapshot=recording.snapshot(lane, index),
        series=_window(recording.series(lane), step, window),
        refusals=_events(recording.events(lane), "refuse", step, window),
        moves=_events(recording.events(lane), "move", step, window),
        tokens_per_second=recording.speed(lane, index),
        checks_made=made,
        checks_failed=failed,
        checked_step=checked,
    )


def _window(series: Series, step: int, window: int) -> Series:
    """The rows of the `window` steps before `step`: the step that made it has number step - 1."""
    first, stop = np.searchsorted(series.step, [step - window, step])
    columns = {name: column for name, column in vars(series).items() if name != "dropped"}
    return Series(
        **{name: column[first:stop] for name, column in columns.items()},
        dropped=series.dropped + int(first),
    )


def _events(events: tuple[Event, ...], kind: str, step: int, window: int) -> tuple[Event, ...]:
    """Events of a kind inside the window, newest first."""
    stop = bisect_right(events, step - 1, key=lambda event: event.step)
    found = []
    for event in reversed(events[:stop]):
        if event.step < step - window:
            break
        if event.kind == kind:
            found.append(event)
    return tuple(found)
