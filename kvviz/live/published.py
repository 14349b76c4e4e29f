"""What a runner shows to the world: immutable, replaced as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvviz.config import RunConfig
from kvviz.engine.lanes import Lanes
from kvviz.engine.recorder import Series
from kvviz.records import Event, Snapshot
from kvviz.workloads.stream import Scaling

WINDOW = 600  # steps shown by the charts over time


@dataclass(frozen=True)
class LaneView:
    """One lane at one step, and its last `WINDOW` steps."""

    snapshot: Snapshot
    series: Series
    refusals: tuple[Event, ...]
    moves: tuple[Event, ...]
    tokens_per_second: float
    checks_made: int
    checks_failed: int
    checked_step: int


@dataclass(frozen=True)
class Published:
    """`version` grows with every publication; `hues` gives each live request its colour."""

    version: int
    step: int
    state: str
    message: str
    config: RunConfig
    device: str
    lanes: dict[str, LaneView] = field(default_factory=dict)
    compared: int = 0
    equal: int = 0
    stream_hash: str = ""
    drawn: int = 0
    scaling: Scaling = field(default_factory=lambda: Scaling(1, 0, 0))
    hues: dict[int, int] = field(default_factory=dict)


def view_lane(lanes: Lanes, name: str) -> LaneView:
    """Copies of everything, so that the thread may go on."""
    engine = lanes.engines[name]
    series = engine.recorder.series(WINDOW)
    return LaneView(
        engine.snapshot(),
        series,
        _events(lanes, name, "refuse"),
        _events(lanes, name, "move"),
        engine.recent_speed(),
        engine.checks_made,
        engine.checks_failed,
        engine.checked_step,
    )


def _events(lanes: Lanes, name: str, kind: str) -> tuple[Event, ...]:
    """Events of a kind inside the window, newest first."""
    engine = lanes.engines[name]
    oldest = engine.step_count - WINDOW
    found = []
    for event in reversed(engine.recorder.events):
        if event.step < oldest:
            break
        if event.kind == kind:
            found.append(event)
    return tuple(found)
