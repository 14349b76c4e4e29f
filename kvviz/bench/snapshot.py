"""What it costs to picture the memory of a busy lane, and to count on the picture.

1,024 sequences, as many as a server runs at once, hold nine tenths of the pool; others have come
and gone. Processor time of a new snapshot and of every metric that a frame draws.
"""

from __future__ import annotations

import numpy as np

from kvviz import metrics
from kvviz.bench.floors import copy_bandwidth, rate
from kvviz.bench.result import Measured, cpu_milliseconds
from kvviz.caches.layouts import LAYOUTS
from kvviz.config import RunConfig
from kvviz.engine.engine import Engine
from kvviz.engine.forward import DryForward
from kvviz.engine.recorder import Recorder
from kvviz.records import Request, Snapshot

BLOCK = 16
RUNNING = 1024
ROUNDS = 15
SIZES = np.unique(np.geomspace(16, 4096, 64).astype(np.int64))
TARGETS = {65_536: 1.0, 1_048_576: 10.0}  # blocks -> ms
_SLOT_BYTES = 2048
# owner, used, refs: int32. Read where they are kept, written to the copy.
_ROW_BYTES = 12


def bench_snapshot() -> list[Measured]:
    found = []
    for blocks, most in TARGETS.items():
        engine = busy_engine("paged", blocks * BLOCK)
        found += _measure(engine, f"paged, {blocks:,} blocks", most)
    engine = busy_engine("contiguous", 65_536 * BLOCK)
    return found + _measure(engine, "contiguous, 1,048,576 slots", TARGETS[65_536])


def busy_engine(layout: str, slots: int, running: int = RUNNING) -> Engine:
    """A dry engine whose pool is nine tenths full, with holes where others were."""
    config = RunConfig().replace(
        {
            "memory.slots": slots,
            "engine.max_running": running,
            "engine.token_budget": 1 << 17,
            "engine.queue_limit": 4 * running,
            "contiguous.reservation": "oracle",
        }
    )
    made = LAYOUTS[layout](config)
    engine = Engine(layout, made, DryForward(), config, _SLOT_BYTES, Recorder(16))
    engine.submit(_requests(slots, running))
    while engine.scheduler.ledger.dropped + engine.finished < running // 4:
        engine.step()
    return engine


def every_metric(snapshot: Snapshot, ask: int) -> None:
    """What a frame's charts and numbers count, for a next request of `ask` slots."""
    sizes, free, block = metrics.holes(snapshot), snapshot.free, snapshot.block
    largest = snapshot.admissible
    one = np.array([ask])  # its two numbers share a count; the two charts have sizes of their own
    for wanted in (one, SIZES):
        fit = metrics.how_many_fit(sizes, block, free, wanted)
        metrics.bound_fit(free, wanted)
        metrics.unusable_curve(sizes, block, free, wanted, fit=fit if wanted is one else None)
    metrics.hole_histogram(sizes, largest)
    metrics.buddyinfo(snapshot)
    metrics.textbook_breakdown(snapshot)
    metrics.paper_breakdown(snapshot, ask)
    metrics.usage(snapshot)
    metrics.block_table_bytes(snapshot)
    metrics.balance_of(snapshot)
    if not snapshot.paged:
        metrics.external_fragmentation(free, largest)
        metrics.fragmentation(sizes, ask)
        metrics.fifty_percent(len(sizes), snapshot.columns.live, 1, 2)
        metrics.unused_memory(snapshot)
        metrics.robson(snapshot, ask)


def _measure(engine: Engine, name: str, most: float) -> list[Measured]:
    rows = len(engine.snapshot().columns.start)
    ask = engine.layout.capacity // (2 * RUNNING)
    bandwidth = copy_bandwidth(rows * _ROW_BYTES)
    floor = rows * _ROW_BYTES / bandwidth * 1e3
    floor_of = f"{rows:,} rows x {_ROW_BYTES} bytes copied at {rate(bandwidth)}"
    alone = cpu_milliseconds(engine.snapshot, ROUNDS)
    both = cpu_milliseconds(lambda: every_metric(engine.snapshot(), ask), ROUNDS)
    return [
        Measured(f"snapshot: {name}", alone, "ms", floor=floor, floor_of=floor_of),
        Measured(f"snapshot and metrics: {name}", both, "ms", None, most, floor, floor_of),
        Measured(f"rows: {name}", rows, "rows"),
    ]


def _requests(slots: int, running: int) -> list[Request]:
    """A quarter of them is short and leaves soon; the others stay."""
    rng = np.random.default_rng(1)
    count = running + running // 4
    mean = 0.9 * slots / running
    lives = np.clip(rng.lognormal(np.log(mean) - 0.18, 0.6, count), 300, 4 * mean).astype(int)
    outputs = np.where(np.arange(count) % 4 == 1, rng.integers(2, 64, count), 256)
    prompts = lives - outputs + 1
    lengths = np.stack([prompts, outputs], axis=1).tolist()
    return [Request(i, 0, prompt, output, output) for i, (prompt, output) in enumerate(lengths)]
