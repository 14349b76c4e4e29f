"""`python -m kvviz bench replay`: a million requests, dry and exact, on one core."""

from __future__ import annotations

import resource
import time

from kvviz.bench.result import Measured
from kvviz.replay.fast import FastLane
from kvviz.replay.lanes import base_config
from kvviz.replay.load import Load, draw_mix, from_trace

REQUESTS = 1_000_000
BLOCKS, BLOCK = 65_536, 16
RATE = 125.0  # requests a second: just under what the pool serves
LANES: dict[str, tuple[str, dict[str, object], float]] = {  # layout, settings, most seconds
    "paged": ("paged", {}, 2.0),
    "contiguous, first fit": ("contiguous", {"contiguous.fit": "first"}, 5.0),
    "contiguous, best fit": ("contiguous", {"contiguous.fit": "best"}, 5.0),
}


def bench_replay() -> list[Measured]:
    """Azure chat 2023 (fitted, lengths undivided) into 65,536 blocks of 16."""
    slots = BLOCKS * BLOCK
    load = from_trace(draw_mix("azure-chat-2023", REQUESTS, RATE), slots=slots)
    began = time.perf_counter()
    seconds(load.first(100), "paged", {})
    figures = [Measured("first lane (compiled, or read from the cache)", _since(began), "s")]
    for name, (layout, changes, most) in LANES.items():
        million = seconds(load, layout, changes)
        small = min(seconds(load.first(10_000), layout, changes) for _ in range(3))
        figures += [
            Measured(f"{name}: 1,000,000 requests", million, "s", at_most=most),
            Measured(
                f"{name}: cost of a request, 1,000,000 over 10,000",
                million / REQUESTS / (small / 10_000),
                "x",
                at_most=1.5,
            ),
        ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return [*figures, Measured("peak memory of the process", peak, "MiB", at_most=600)]


def seconds(load: Load, layout: str, changes: dict[str, object]) -> float:
    """Processor time to serve the load: what else the machine does is not in it."""
    config = base_config(BLOCKS * BLOCK, load.context).replace(
        {"engine.queue_limit": 1 << 20, **changes}
    )
    lane = FastLane(load, config, layout)
    began = time.thread_time()
    lane.serve()
    spent = time.thread_time() - began
    counts = lane.result().counts
    assert counts["finished"] + counts["dropped"] == load.rows
    return spent


def _since(began: float) -> float:
    return time.perf_counter() - began
