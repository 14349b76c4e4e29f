"""Shorthand that several test modules share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kvviz.build import Backend, build_lanes
from kvviz.caches.layout import Layout, Places
from kvviz.caches.layouts import LAYOUTS
from kvviz.config import RunConfig
from kvviz.engine.engine import Engine
from kvviz.engine.forward import DryForward, Forward
from kvviz.engine.lanes import Lanes
from kvviz.engine.recorder import Recorder
from kvviz.records import Event, Region, Request
from kvviz.workloads.presets import PRESETS

SMALL: dict[str, Any] = {
    "memory.slots": 512,
    "memory.context": 128,
    "mix.prompt_mean": 24,
    "mix.output_mean": 20,
    "mix.long_prompt": 90,
    "mix.rate": 0.4,
    "engine.token_budget": 64,
}


def config(changes: dict[str, Any] | None = None) -> RunConfig:
    """The defaults with a few settings changed."""
    return RunConfig().replace(changes or {})


def small(changes: dict[str, Any] | None = None) -> RunConfig:
    """A run of 512 slots that fills up and refuses within some hundred steps."""
    return RunConfig().replace({**SMALL, **(changes or {})})


def request(
    id: int, prompt: int, output: int, limit: int | None = None, arrival: int = 0
) -> Request:
    """A request by hand; its limit is its output unless given."""
    return Request(id, arrival, prompt, output, output if limit is None else limit, text=id)


def layout(name: str, changes: dict[str, Any]) -> Layout:
    return LAYOUTS[name](config(changes))


def engine(name: str, changes: dict[str, Any], forward: Forward | None = None) -> Engine:
    """One dry lane (or one with this forward), fed by hand."""
    run = config({"dry": True, **changes})
    return Engine(name, LAYOUTS[name](run), forward or DryForward(), run, 64, Recorder(4096))


@contextmanager
def lanes(
    run: RunConfig, backend: Backend | None = None, names: tuple[str, ...] = ()
) -> Iterator[Lanes]:
    """Lanes that give their memory back at the end of the test."""
    built = build_lanes(run, backend, names)
    try:
        yield built
    finally:
        built.close()


def run_steps(built: Lanes | Engine, count: int) -> None:
    for _ in range(count):
        built.step()


def events(engine: Engine, *kinds: str) -> list[Event]:
    """What the recorder kept of these kinds, in order."""
    return [e for e in engine.recorder.events if e.kind in kinds]


def ids(engine: Engine, kind: str) -> list[int]:
    return [e.request for e in events(engine, kind)]


def runs(owners: list[int], wanted: int = -1) -> list[Region]:
    """Maximal runs of `wanted` in a list of slot owners: the holes, found the slow way."""
    found: list[Region] = []
    for slot, owner in enumerate(owners):
        if owner != wanted:
            continue
        if found and found[-1].end == slot:
            found[-1] = Region(found[-1].start, found[-1].size + 1)
        else:
            found.append(Region(slot, 1))
    return found


def place(layout: Layout) -> list[int]:
    """Give claimed tokens their slots, where the layout waits for that."""
    return layout.place() if isinstance(layout, Places) else []


def indices(layout: Layout, request_id: int) -> np.ndarray:
    """`layout.slots` as an array of slot numbers, whichever kind it is."""
    where = layout.slots(request_id)
    return np.arange(where.start, where.stop) if isinstance(where, slice) else where


# Presets that a dry run serves: one that lets the model end its answers needs the model
DRY_PRESETS = [n for n, p in PRESETS.items() if p.settings.get("engine.ends") != "model"]
# One preset for each pair of lanes, and those whose memory looks like no other's
PAIRS = ("chat-and-documents", "buddy", "llama-cpp", "system-prompts", "parallel-samples", "swap",
         "virtual", "control")  # fmt: skip
