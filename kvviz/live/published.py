"""What a runner shows to the world: immutable, replaced as a whole."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter

from kvviz.config import RunConfig
from kvviz.engine.engine import Engine, Fault
from kvviz.engine.lanes import Lanes
from kvviz.engine.recorder import Series
from kvviz.records import DeviceMemory, Event, Snapshot
from kvviz.workloads.stream import Scaling

WINDOW = 600  # steps shown by the charts over time


@dataclass(frozen=True)
class LaneView:
    """One lane at one step, and `WINDOW` steps up to it or, of a past step, around it.

    attention: how the lane reads its cache.
    refusals: those in the window up to the step, newest first; later: those after it. moves:
    those in the window.
    """

    snapshot: Snapshot
    series: Series
    refusals: tuple[Event, ...]
    moves: tuple[Event, ...]
    tokens_per_second: float
    checks_made: int
    checks_failed: int
    checked_step: int
    later: tuple[Event, ...] = ()
    attention: str = ""


@dataclass(frozen=True)
class Published:
    """`version` grows with every publication; `hues` gives each live request its colour.

    looking: this is a past step, and the run itself stands at `last`. first, last: the steps
    that are kept and can be looked at; last is -1 when there is none.
    changes: the steps at which settings were changed while it ran.
    memory: what the GPU says of its own; None on the CPU.
    replayed: the run was made anew from a link, without tensors.
    faults: lanes that stopped, and why; their pictures are of the step before.
    """

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
    looking: bool = False
    first: int = -1
    last: int = -1
    changes: tuple[int, ...] = ()
    replayed: bool = False
    memory: DeviceMemory | None = None
    faults: dict[str, Fault] = field(default_factory=dict)

    @property
    def stopped(self) -> dict[str, Fault]:
        """The faults that had happened by this step."""
        return {name: fault for name, fault in self.faults.items() if fault.step < self.step}


def view_lane(lanes: Lanes, name: str, snapshot: Snapshot | None = None) -> LaneView:
    """Copies of everything, so that the thread may go on. `snapshot` when it was just taken."""
    engine = lanes.engines[name]
    return LaneView(
        snapshot or engine.snapshot(),
        engine.recorder.series(WINDOW),
        events_between(engine, "refuse", engine.step_count - WINDOW, engine.step_count),
        events_between(engine, "move", engine.step_count - WINDOW, engine.step_count),
        engine.recent_speed(),
        engine.checks_made,
        engine.checks_failed,
        engine.checked_step,
        attention=engine.forward.attention,
    )


def events_between(engine: Engine, kind: str, first: int, end: int) -> tuple[Event, ...]:
    """Events of a kind in steps [first, end), newest first."""
    events = engine.recorder.events
    low, high = (bisect_left(events, step, key=attrgetter("step")) for step in (first, end))
    found = [event for event in islice(events, low, high) if event.kind == kind]
    return tuple(reversed(found))
