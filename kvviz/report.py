"""What a run without a browser prints and writes: one dict of numbers, and a table of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kvviz.engine.engine import Engine
from kvviz.engine.lanes import Lanes
from kvviz.metrics import summary, time_weighted
from kvviz.records import DeviceMemory

TIMED = ("tokens_per_second", "move_seconds")  # the only fields a seed does not reproduce


def run_report(lanes: Lanes, device: str, memory: DeviceMemory | None = None) -> dict[str, Any]:
    """Everything about a finished run. Times are measured; all else follows from the seed.

    `memory` of a GPU stands beside the pools' own bytes, as `device_memory`.
    """
    engines = lanes.engines.values()
    return {
        "lanes": {
            name: lane_report(engine) | {"attention": engine.forward.attention or None}
            for name, engine in lanes.engines.items()
        },
        "requests_compared": lanes.comparison.compared,
        "requests_equal": lanes.comparison.equal,
        "map_checks": {
            "made": sum(e.checks_made for e in engines),
            "failed": sum(e.checks_failed for e in engines),
        },
        "stream_hash": lanes.stream.hash,
        "scaling": vars(lanes.stream.scaling) | {"context": lanes.config.memory.context},
        "config": lanes.config.as_dict(),
        "device": device,
        "steps": lanes.step_count,
        **_device_memory(lanes, memory),
    }


def _device_memory(lanes: Lanes, memory: DeviceMemory | None) -> dict[str, dict[str, int]]:
    if memory is None:
        return {}
    pools = sum(e.layout.capacity * e.slot_bytes for e in lanes.engines.values())
    return {"device_memory": {"pool_bytes": pools, **memory._asdict()}}


def lane_report(engine: Engine) -> dict[str, Any]:
    """Sizes in slots; shares of the pool from 0 to 1; `refused` by first verdict.

    `time_median` and `time_p95` weigh each value with the steps for which it held.
    """
    counters = engine.counters()
    series = engine.recorder.series()
    external = np.full(len(series.step), np.nan)  # n/a while nothing is free
    some_free = series.free > 0
    external[some_free] = 1 - series.admissible[some_free] / series.free[some_free]
    return {
        "admitted": counters.admitted,
        "finished": counters.finished,
        "refused": counters.refused,
        "false_refusals": counters.false_refusals,
        "turned_away": counters.dropped,
        "preempted": counters.preempted,
        "recomputed_tokens": counters.recomputed,
        "slots_moved": counters.slots_moved,
        "free": _over_time(series.step, series.free),
        "largest_admissible": _over_time(series.step, series.admissible),
        "slot_usage": _over_time(series.step, series.written / engine.layout.capacity),
        "running": _over_time(series.step, series.running),
        "external_fragmentation": {
            "mean": _rounded(external[some_free], np.mean),
            "max": _rounded(external[some_free], np.max),
            **_time_weighted(series.step, external),
        },
        "generated_tokens": counters.generated,
        "forward_passes": counters.passes,
        "tokens_per_second": round(counters.generated / engine.seconds, 1)
        if engine.seconds
        else None,
        "move_seconds": round(counters.move_seconds, 4),
    }


def table(report: dict[str, Any]) -> str:
    """The report as aligned text, a column a lane."""
    names = tuple(report["lanes"])
    rows = [("", *names), *run_rows(report, names)]
    lines = aligned(rows)
    checks = report["map_checks"]
    lines += [
        "",
        f"outputs equal: {report['requests_equal']:,} of "
        f"{report['requests_compared']:,} requests compared",
        f"map checked against the tensors: {checks['made']:,} times, {checks['failed']:,} failed",
        *_scaled(report["scaling"]),
        f"stream {report['stream_hash']}, {report['steps']:,} steps, {report['device']}",
        *_device_lines(report),
    ]
    return "\n".join(lines)


def _scaled(done: dict[str, int]) -> list[str]:
    """What fitting the requests to the context did to how many of them."""
    if not done["divided"] and not done["clipped"]:
        return []
    return [
        f"to fit a context of {done['context']:,}, lengths of {done['divided']:,} of "
        f"{done['of']:,} requests were divided by {done['divide']}, {done['raised']:,} raised to "
        f"1 token, {done['clipped']:,} cut"
    ]


def _device_lines(report: dict[str, Any]) -> list[str]:
    """How each lane reads its cache, where that is not all one, and the device's own numbers."""
    ways = {name: lane.get("attention") for name, lane in report["lanes"].items()}
    lines = []
    if "device_memory" in report:
        told = {name: count / 2**20 for name, count in report["device_memory"].items()}
        lines.append(
            f"device memory: pools {told['pool_bytes']:,.0f} MiB, allocated "
            f"{told['allocated_bytes']:,.0f}, reserved {told['reserved_bytes']:,.0f}, free "
            f"{told['free_bytes']:,.0f} of {told['total_bytes']:,.0f}"
        )
        lines += [f"attention, {name}: {way}" for name, way in ways.items() if way]
    return lines


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows as lines of equal columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def run_rows(report: dict[str, Any], names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """(label, a value for each of the lanes) as text. A report from a file may lack a number, or
    hold something else there: that is n/a."""

    def cell(name: str, read: Callable[[dict[str, Any]], float | None]) -> str:
        try:
            return _cell(read(report["lanes"][name]))
        except (KeyError, TypeError, ValueError):
            return "n/a"

    return [(label, *(cell(name, read) for name in names)) for label, read in _ROWS]


_ROWS = (
    ("admitted", lambda r: r["admitted"]),
    ("finished", lambda r: r["finished"]),
    ("refused: fragmented (false refusals)", lambda r: r["refused"]["fragmented"]),
    ("refused: capacity", lambda r: r["refused"]["capacity"]),
    ("refused: queued", lambda r: r["refused"]["queued"]),
    ("refused: never", lambda r: r["refused"]["never"]),
    ("turned away", lambda r: r["turned_away"]),
    ("preempted", lambda r: r["preempted"]),
    ("slots moved", lambda r: r["slots_moved"]),
    ("free slots, mean", lambda r: r["free"]["mean"]),
    ("free slots, median over time", lambda r: r["free"]["time_median"]),
    ("largest admissible, mean", lambda r: r["largest_admissible"]["mean"]),
    ("slot usage, mean", lambda r: r["slot_usage"]["mean"]),
    ("external fragmentation, mean", lambda r: r["external_fragmentation"]["mean"]),
    (
        "external fragmentation, median over time",
        lambda r: r["external_fragmentation"]["time_median"],
    ),
    ("external fragmentation, max", lambda r: r["external_fragmentation"]["max"]),
    ("running, mean", lambda r: r["running"]["mean"]),
    ("forward passes", lambda r: r["forward_passes"]),
    ("tokens a second (measured)", lambda r: r["tokens_per_second"]),
)


def _over_time(steps: np.ndarray, values: np.ndarray) -> dict[str, float | None]:
    """mean and p95 over the steps recorded, and the two quantiles over time."""
    return summary(values) | _time_weighted(steps, values)


def _time_weighted(steps: np.ndarray, values: np.ndarray) -> dict[str, float | None]:
    found = time_weighted(steps, values)
    return {
        f"time_{name}": None if value is None else round(value, 4)
        for name, value in (("median", found.median), ("p95", found.p95))
    }


def _rounded(values: np.ndarray, of: Any) -> float | None:
    return round(float(of(values)), 4) if len(values) else None


def _cell(value: float | None) -> str:
    if value is None:
        return "n/a"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip(".")
