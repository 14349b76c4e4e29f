"""What a replay of one lane found: counts, per-request times, sums over time, and samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvviz.metrics import summary
from kvviz.records import REFUSALS
from kvviz.replay.load import Load

POINTS = 2_000  # samples kept of a lane, evenly spaced in steps
FIELDS = (
    "step", "free", "admissible", "written", "running", "waiting", "generated", "over", "stuck",
)  # fmt: skip
Watch = Callable[[int], bool]  # gets how many requests are through; False stops the serving
SUMS = ("free", "admissible", "written", "running", "waiting")


@dataclass(frozen=True, eq=False)
class LaneResult:
    """`counts`: admitted, finished, preempted, dropped, recomputed, cached, moved, passes,
    generated, and `refused` by first verdict. `first` and `done` int [rows]: the step in which a
    request was first admitted and in which it finished, -1 if never. `sums` float [SUMS]: over
    all steps.
    `busy` int [most running + 1]: steps by number of running sequences. `samples` int
    [points, FIELDS]; `over` is held for the output and never used, `stuck` is free and too
    small for the next request.

    way: "events" (compiled, from event to event) or "steps"; `why` it had to be the latter.
    """

    way: str
    why: str
    capacity: int
    usable: int
    steps: int
    seconds: float
    counts: dict[str, Any]
    first: np.ndarray
    done: np.ndarray
    sums: np.ndarray
    busy: np.ndarray
    samples: np.ndarray

    def column(self, name: str) -> np.ndarray:
        return self.samples[:, FIELDS.index(name)]

    def mean(self, name: str) -> float:
        """Over all steps."""
        return float(self.sums[SUMS.index(name)]) / max(self.steps, 1)


def lane_report(result: LaneResult, load: Load) -> dict[str, Any]:
    """A lane as JSON: sizes in slots, shares of the pool from 0 to 1, times in steps and s.

    Means are over all steps; quantiles of `free` to `external_fragmentation`, and what the paper
    calls internal and external, are over the samples (evenly spaced steps).
    """
    c = result.counts
    refused = dict(zip(REFUSALS, c["refused"], strict=True))
    return {
        "admitted": c["admitted"],
        "finished": c["finished"],
        "refused": refused,
        "false_refusals": refused["fragmented"],
        "turned_away": c["dropped"],
        "preempted": c["preempted"],
        "recomputed_tokens": c["recomputed"],
        "cached_tokens": c["cached"],
        "slots_moved": c["moved"],
        "free": _over_time(result, "free"),
        "largest_admissible": _over_time(result, "admissible"),
        "slot_usage": {
            "mean": round(result.mean("written") / result.capacity, 4),
            "p95": _p95(result.column("written") / result.capacity),
        },
        "running": {"mean": round(result.mean("running"), 4), "p95": _busy_p95(result.busy)},
        "external_fragmentation": _external(result),
        "generated_tokens": c["generated"],
        "forward_passes": c["passes"],
        "waited": waits(result, load),
        "waste": waste(result),
        "steps": result.steps,
        "span_s": round(result.steps * load.step_ms / 1000, 3),
        "seconds": round(result.seconds, 4),
        "way": result.way,
        "why": result.why,
        "series": {
            name: result.column(name).tolist()
            for name in ("step", "free", "admissible", "written", "running", "waiting")
        },
    }


def waits(result: LaneResult, load: Load) -> dict[str, float | None]:
    """From arrival to first admission, of those that were admitted."""
    served = result.first >= 0
    waited = (result.first - load.arrival)[served]
    found: dict[str, float | None] = {}
    for name, share in (("p50", 50), ("p95", 95), ("p99", 99)):
        value = float(np.percentile(waited, share)) if len(waited) else None
        found[f"{name}_steps"] = None if value is None else round(value, 2)
        found[f"{name}_s"] = None if value is None else round(value * load.step_ms / 1000, 4)
    return found


def waste(result: LaneResult) -> dict[str, dict[str, float]]:
    """Shares of the pool, in the textbook's sense and in that of the PagedAttention paper; see
    `metrics.breakdowns`."""
    pool = result.capacity
    held = result.usable - result.mean("free")
    internal = held - result.mean("written")
    paged = result.counts["paged"]
    outside = 0.0 if paged else result.mean("free") - result.mean("admissible")
    over, stuck = (
        float(result.column(name).mean()) if len(result.samples) else 0.0
        for name in ("over", "stuck")
    )
    return {
        "textbook": {
            "internal": round(internal / pool, 4),
            "external": round(outside / pool, 4),
        },
        "paper": {
            "token_states": round(result.mean("written") / pool, 4),
            "reservation": round(max(0.0, internal - over) / pool, 4),
            "internal": round(over / pool, 4),
            "external": round(stuck / pool, 4),
        },
    }


def _over_time(result: LaneResult, name: str) -> dict[str, float | None]:
    found = summary(result.column(name))
    return {"mean": round(result.mean(name), 4), "p95": found["p95"]}


def _external(result: LaneResult) -> dict[str, float | None]:
    free, admissible = result.column("free"), result.column("admissible")
    some = free > 0
    shares = 1 - admissible[some] / free[some]
    return {**summary(shares), "max": round(float(shares.max()), 4) if len(shares) else None}


def _p95(values: np.ndarray) -> float | None:
    return summary(values)["p95"]


def _busy_p95(busy: np.ndarray) -> int | None:
    steps = np.cumsum(busy)
    if not steps[-1]:
        return None
    return int(np.searchsorted(steps, 0.95 * steps[-1] * (1 - 1e-12)))
