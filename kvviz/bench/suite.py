"""All benchmarks by name, and the machine they ran on."""

from __future__ import annotations

import gc
import os
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from kvviz import __version__
from kvviz.bench.allocators import bench_allocators
from kvviz.bench.compaction import bench_compaction
from kvviz.bench.cuda import bench_cuda
from kvviz.bench.engine import bench_chat, bench_engine
from kvviz.bench.frame import bench_frame
from kvviz.bench.replay import bench_replay
from kvviz.bench.result import LeftOut, Measured
from kvviz.bench.snapshot import bench_snapshot
from kvviz.errors import ConfigError

BENCHES: dict[str, Callable[[], list[Measured]]] = {
    "replay": bench_replay,  # first: it looks at the memory of the process
    "engine": bench_engine,
    "chat": bench_chat,
    "snapshot": bench_snapshot,
    "frame": bench_frame,
    "allocators": bench_allocators,
    "compaction": bench_compaction,
    "cuda": bench_cuda,
}


def run_benches(names: list[str]) -> dict[str, Any]:
    """Run the named benchmarks (all when empty), print each figure, return them.

    One that needs what is not installed is left out, with the reason. Raises ConfigError for a
    name that is not there.
    """
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        raise ConfigError(f"no benchmark {unknown[0]!r}. There is: {', '.join(BENCHES)}.")
    report: dict[str, Any] = {
        "machine": machine(),
        "kvviz": __version__,
        "when": datetime.now(UTC).isoformat(timespec="minutes"),
        "load": load(),
        "command": " ".join(["python -m kvviz bench", *names]),
        "figures": {},
        "left_out": {},
    }
    print(f"{report['machine']}\n{report['load']}")
    for name in names or BENCHES:
        print(name)
        gc.collect()
        gc.freeze()  # as the server does: what was loaded is never garbage, and no figure's cost
        try:
            measured = BENCHES[name]()
        except LeftOut as reason:
            print(f"  left out: {reason}")
            report["left_out"][name] = str(reason)
            continue
        for figure in measured:
            print(figure.line())
        report["figures"][name] = [figure.as_dict() for figure in measured]
    report["targets"] = targets(report["figures"])
    print("targets: {held} held, {missed} missed".format(**report["targets"]))
    return report


def targets(figures: dict[str, list[dict[str, Any]]]) -> dict[str, int]:
    """How many figures hold their target, and how many miss it."""
    holds = [figure["holds"] for found in figures.values() for figure in found]
    return {"held": holds.count(True), "missed": holds.count(False)}


def load() -> str:
    """What else the machine does, for absolute times depend on it."""
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return "load unknown" if busy is None else f"load average {busy:.1f} at the start"


def machine() -> str:
    """Processor, cores, Python and torch: what figures depend on."""
    import torch

    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            name = next(
                line.split(":")[1].strip() for line in lines if line.startswith("model name")
            )
    except (OSError, StopIteration):
        pass
    return (
        f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"torch {torch.__version__}"
    )
