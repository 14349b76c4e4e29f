"""What a frame of the live page costs: its bytes, and the server's time, at two pool sizes."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from kvviz.bench.result import Measured
from kvviz.build import build_lanes
from kvviz.config import RunConfig
from kvviz.engine.lanes import Lanes
from kvviz.live.hues import HueBook
from kvviz.live.published import Published, view_lane
from kvviz.ui import frames

FRAMES_A_SECOND = 10
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
    return found


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
