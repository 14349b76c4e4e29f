"""Does the compiled way equal the step-by-step engine, event for event?"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kvviz.config import RunConfig
from kvviz.errors import ConfigError
from kvviz.replay.load import Load
from kvviz.replay.plain import PlainLane
from kvviz.replay.support import why_plain

CHECKED = 20_000  # requests, the first of the trace
_SPARE = 64  # room for events too many

# Settings under which each supported policy is checked, over those of the lane
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "paged": ("paged", {}),
    "paged, chunk": ("paged", {"paged.admission": "chunk", "engine.chunk": 512}),
    "paged, limit": ("paged", {"paged.admission": "limit"}),
    "paged, watermark": ("paged", {"paged.watermark": 0.05, "paged.null_block": True}),
    "first fit, oracle": ("contiguous", {}),
    "best fit, oracle": ("contiguous", {"contiguous.fit": "best"}),
    "first fit, pow2": ("contiguous", {"contiguous.reservation": "pow2"}),
    "best fit, max": (
        "contiguous",
        {"contiguous.fit": "best", "contiguous.reservation": "max"},
    ),
    "first fit, exact": ("contiguous", {"contiguous.reservation": "exact"}),
    "best fit, exact": (
        "contiguous",
        {"contiguous.fit": "best", "contiguous.reservation": "exact"},
    ),
}


class Equality(NamedTuple):
    """`difference` is empty when the two are equal; else the first one found."""

    events: int
    steps: int
    difference: str
    plain_seconds: float
    fast_seconds: float


def compare(
    load: Load, config: RunConfig, layout: str, slot_bytes: int = 1, *, ids: bool = False
) -> Equality:
    """Run both ways to the end and compare events, counts, sums, samples and times."""
    from kvviz.replay.fast import FastLane

    if why := why_plain(layout, config):
        raise ConfigError(f"nothing to compare: {why} runs step by step only.")
    plain = PlainLane(load, config, layout, slot_bytes, events=True)
    plain.serve()
    events = plain.events()
    fast = FastLane(load, config, layout, events=len(events) + _SPARE, ids=ids)
    fast.serve()
    return Equality(len(events), plain.step, difference(plain, fast), plain.seconds, fast.seconds)


def difference(plain: Any, fast: Any) -> str:
    """The first thing in which two finished lanes differ, or nothing."""
    expected, found = plain.events(), fast.events()
    for at, (one, other) in enumerate(zip(expected, found, strict=False)):
        if one != other:
            return f"event {at}: {one} step by step, {other} by events"
    if len(expected) != len(found):
        return f"{len(expected)} events step by step, {len(found)} by events"
    a, b = plain.result(), fast.result()
    if (a.steps, a.counts) != (b.steps, b.counts):
        return f"{a.steps} steps, {a.counts} step by step, {b.steps}, {b.counts} by events"
    for name in ("first", "done", "sums", "busy", "samples"):
        one, other = getattr(a, name), getattr(b, name)
        if not np.array_equal(one, other):
            return f"{name}: {one} step by step, {other} by events"
    return ""
