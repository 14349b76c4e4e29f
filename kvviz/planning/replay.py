"""Dry replays of one lane: a full system, and the rate of arrivals at which it first refuses."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kvviz.build import build_lanes
from kvviz.config import RunConfig
from kvviz.engine.engine import Engine
from kvviz.metrics import Breakdown, paper_breakdown, textbook_breakdown
from kvviz.records import CAPACITY, FRAGMENTED, NEVER, Request

MOST_IN_SYSTEM = 1024
_MOST_STEPS = 200_000  # of one replay
_SAMPLES = 64  # snapshots taken for the waste
_PARTS = ("written", "reserved", "internal", "external")
_BISECTIONS = 3


@dataclass
class Tally:
    """Sums over the steps of a replay."""

    running: list[int] = field(default_factory=list)
    paper: list[Breakdown] = field(default_factory=list)
    textbook: list[Breakdown] = field(default_factory=list)


def saturate(config: RunConfig, expected: float, requests: int) -> tuple[Engine, Tally]:
    """More requests than fit, always; counted after the first generation has left."""
    config = closed(config, min(MOST_IN_SYSTEM, int(1.5 * expected) + 8))
    lanes = build_lanes(config, history=64)
    (engine,) = lanes.engines.values()
    warm, tally = 0, Tally()
    every = max(1, int(requests / max(expected, 1) * 100 / _SAMPLES))
    for step in range(_MOST_STEPS):
        before = engine.finished
        lanes.step()
        warm = warm or (step if engine.finished >= expected else 0)
        if warm:  # those that ended in this step were served in it
            tally.running.append(len(engine.scheduler.running) + engine.finished - before)
            if step % every == 0:
                _look(engine, tally)
            if engine.finished >= expected + requests:
                break
    return engine, tally


def _look(engine: Engine, tally: Tally) -> None:
    snapshot = engine.snapshot()
    ask = int(snapshot.waiting_need[0]) if len(snapshot.waiting_need) else 1
    tally.paper.append(paper_breakdown(snapshot, ask))
    tally.textbook.append(textbook_breakdown(snapshot))


def shares(parts: list[Breakdown]) -> dict[str, float] | None:
    if not parts:
        return None
    return {
        name: round(float(np.mean([getattr(p, name) / p.total for p in parts])), 4)
        for name in _PARTS
    }


def refusals_start(
    config: RunConfig, expected: float, sample: list[Request]
) -> tuple[float | None, float | None, str]:
    """(lowest rate that refused, highest that did not, first verdict), by doubling and bisection.

    The same requests at every rate, only their gaps shrink.
    """
    steps = float(np.mean([request.output_len for request in sample])) + 1
    rate = min(max(expected / steps / 2, 0.001), 32.0)
    count = max(len(sample), int(2 * expected))  # fewer would never fill the pool
    low = high = None
    verdict = ""
    while (low is None or high is None) and 0.001 <= rate <= 64:
        found = _first_refusal(config, rate, count)
        if found:
            high, verdict, rate = rate, found, rate / 2
        else:
            low, rate = rate, rate * 2
    if low is None or high is None:
        return high, low, verdict
    for _ in range(_BISECTIONS):
        middle = (low * high) ** 0.5
        found = _first_refusal(config, middle, count)
        if found:
            high, verdict = middle, found
        else:
            low = middle
    return high, low, verdict


def _first_refusal(config: RunConfig, rate: float, requests: int) -> str:
    """The verdict of the first request that memory refused at this rate; '' for none."""
    config = config.replace({"mix.arrivals": "poisson", "mix.rate": rate})
    lanes = build_lanes(config, history=64)
    (engine,) = lanes.engines.values()
    turns = config.engine.max_running
    for _ in range(_MOST_STEPS):
        lanes.step()
        refused = engine.scheduler.ledger.refused
        for verdict in (FRAGMENTED, CAPACITY, NEVER):
            if refused[verdict]:
                return verdict
        if engine.scheduler.waiting and len(engine.scheduler.running) >= turns:
            return CAPACITY  # all the windows and states that were set aside are taken
        if engine.scheduler.ledger.arrived >= requests:
            return ""
    return ""


def closed(config: RunConfig, concurrency: int) -> RunConfig:
    return config.replace({"mix.arrivals": "closed", "mix.concurrency": concurrency})
