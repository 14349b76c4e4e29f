"""What a frame of the live page costs: its bytes, and the server's time, at two pool sizes; and the
map alone of a pool of a million blocks.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from kvviz.bench.result import Measured
from kvviz.bench.snapshot import BLOCK, busy_engine
from kvviz.build import build_lanes
from kvviz.config import RunConfig
from kvviz.engine.lanes import Lanes
from kvviz.live.hues import HueBook
from kvviz.live.published import Published, view_lane
from kvviz.records import Columns, Snapshot
from kvviz.ui import frames
from kvviz.ui.packed import as_json, deflated
from kvviz.views.memory_map import memory_map
from kvviz.views.theme import THEMES

FRAMES_A_SECOND = 10
LARGE_BLOCKS, LARGE_ROUNDS = 1_048_576, 15
SIZES = {
    8192: {},
    65_536: {"mix.rate": 1.6, "engine.token_budget": 2048, "engine.max_running": 512},
}


def busy_lanes(slots: int) -> Lanes:
    """Dry lanes after 400 steps, with a full pool."""
    lanes = build_lanes(RunConfig().replace({"memory.slots": slots, "dry": True, **SIZES[slots]}))
    for _ in range(400):
        lanes.step()
    return lanes


def bench_frame() -> list[Measured]:
    """Frames of a running engine, ten a second: maps in each, of the charts, the numbers and the
    columns for hovering each in every fifth."""
    found = []
    for slots in SIZES:
        lanes = busy_lanes(slots)
        builder, sizes, cpu = frames.FrameBuilder(_clock()), [], []
        book = HueBook()
        builder.build(_publish(lanes, book, 0))  # loads the encoder
        for version in range(1, 41):
            lanes.step()
            published = _publish(lanes, book, version)
            began = time.process_time()
            sizes.append(len(builder.build(published)))
            cpu.append(time.process_time() - began)
        found += [
            Measured(
                f"frame, {slots:,} slots: mean size",
                sum(sizes) / len(sizes) / 1e3,
                "KB",
                at_most=60,
            ),
            Measured(f"frame, {slots:,} slots: largest", max(sizes) / 1e3, "KB", at_most=60),
            Measured(
                f"frame, {slots:,} slots: mean server CPU",
                sum(cpu) / len(cpu) * 1e3,
                "ms",
                at_most=15,
            ),
            Measured(f"frame, {slots:,} slots: worst server CPU", max(cpu) * 1e3, "ms", at_most=15),
        ]
    return [*found, *_large_map()]


def _large_map() -> list[Measured]:
    """One lane's map after each of some steps, as it is sent. Its blocks lie scattered, as after
    days of service: neighbours in the table are none in the pool, and nothing repeats."""
    engine, book = busy_engine("paged", LARGE_BLOCKS * BLOCK), HueBook()
    rng, sizes, cpu = np.random.default_rng(1), [], []
    for _ in range(LARGE_ROUNDS):
        engine.step()
        snapshot = _scattered(engine.snapshot(), rng)
        hues = book.update([snapshot])
        began = time.process_time()
        figure = memory_map(snapshot, THEMES["light"], hues, name="paged", ghost=snapshot.head)
        sizes.append(len(deflated(as_json(figure))))
        cpu.append(time.process_time() - began)
    name = f"map, {LARGE_BLOCKS:,} blocks"
    return [
        Measured(f"{name}: largest", max(sizes) / 1e3, "KB", at_most=60),
        Measured(f"{name}: median server CPU", statistics.median(cpu) * 1e3, "ms", at_most=20),
    ]


def _scattered(snapshot: Snapshot, rng: np.random.Generator) -> Snapshot:
    """The same blocks in any order."""
    c, order = snapshot.columns, rng.permutation(len(snapshot.columns.start))
    return replace(
        snapshot, columns=Columns(c.start, c.size, c.used[order], c.owner[order], c.refs[order])
    )


def _clock() -> Callable[[], float]:
    """It goes on with each frame."""
    frame = itertools.count()
    return lambda: next(frame) / FRAMES_A_SECOND


def _publish(lanes: Lanes, book: HueBook, version: int) -> Published:
    views = {name: view_lane(lanes, name) for name in lanes.engines}
    hues = book.update([view.snapshot for view in views.values()])
    return Published(
        version, lanes.step_count, "running", "", lanes.config, "CPU", views, hues=hues
    )
