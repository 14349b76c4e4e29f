"""All benchmarks by name, and the machine they ran on."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from typing import Any

from kvviz import __version__
from kvviz.bench.allocators import bench_allocators
from kvviz.bench.cuda import bench_cuda
from kvviz.bench.engine import bench_chat, bench_engine
from kvviz.bench.frame import bench_frame, bench_snapshot
from kvviz.bench.replay import bench_replay
from kvviz.bench.result import Measured
from kvviz.errors import ConfigError

BENCHES: dict[str, Callable[[], list[Measured]]] = {
    "engine": bench_engine,
    "chat": bench_chat,
    "snapshot": bench_snapshot,
    "frame": bench_frame,
    "allocators": bench_allocators,
    "replay": bench_replay,
    "cuda": bench_cuda,
}


def run_benches(names: list[str]) -> dict[str, Any]:
    """Run the named benchmarks (all when empty), print each figure, return them.

    Raises ConfigError for a name that is not there.
    """
    unknown = [name for name in names if name not in BENCHES]
    if unknown:
        raise ConfigError(f"no benchmark {unknown[0]!r}. There is: {', '.join(BENCHES)}.")
    report: dict[str, Any] = {"machine": machine(), "kvviz": __version__, "figures": {}}
    print(report["machine"])
    for name in names or BENCHES:
        print(name)
        measured = BENCHES[name]()
        for figure in measured:
            print(figure.line())
        report["figures"][name] = [figure.as_dict() for figure in measured]
    return report


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
