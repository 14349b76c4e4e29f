"""Recordings of small dry runs, with the snapshots that went into them."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from kvviz.build import build_lanes
from kvviz.config import RunConfig
from kvviz.engine.recorder import Series
from kvviz.recording.tape import Tape
from kvviz.records import Columns, Event, Snapshot
from tests.helpers import small


class Made(NamedTuple):
    """`snapshots`: {lane: of each recorded step}; what the recording must give back."""

    data: bytes
    snapshots: dict[str, list[Snapshot]]
    events: dict[str, list[Event]]
    series: dict[str, Series]


def record(config: RunConfig, steps: int, every: int = 1) -> Made:
    lanes = build_lanes(config)
    try:
        tape = Tape(lanes, every)
        snapshots: dict[str, list[Snapshot]] = {name: [] for name in lanes.engines}
        for step in range(1, steps + 1):
            lanes.step()
            tape.take()
            if step % every == 0 or (steps < every and step == steps):
                for name, engine in lanes.engines.items():
                    snapshots[name].append(engine.snapshot())
        return Made(
            tape.close("dry"),
            snapshots,
            {name: list(engine.recorder.events) for name, engine in lanes.engines.items()},
            {name: engine.recorder.series() for name, engine in lanes.engines.items()},
        )
    finally:
        lanes.close()


@lru_cache(maxsize=8)
def recorded(steps: int = 300, every: int = 1, **changes: Any) -> Made:
    """A run that fills its pool and refuses; shared between tests."""
    return record(small({"dry": True, "mix.rate": 0.8, **changes}), steps, every)


def unequal(one: Any, other: Any) -> list[str]:
    """The names of the fields in which two Snapshots, Series or Columns differ."""
    found = []
    for name in (field.name for field in fields(one)):
        mine, theirs = getattr(one, name), getattr(other, name)
        if isinstance(mine, Columns):
            found += [f"{name}.{inner}" for inner in unequal(mine, theirs)]
        elif isinstance(mine, np.ndarray):
            same = isinstance(theirs, np.ndarray) and mine.dtype.kind == theirs.dtype.kind
            if not same or not np.array_equal(mine, theirs):
                found.append(name)
        elif mine != theirs or type(mine) is not type(theirs):
            found.append(name)
    return found
