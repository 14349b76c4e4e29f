"""Rounds of the soak, one after the other, until the time is over.

A round serves drawn settings on tensors, changes them while it runs, looks at every lane after
every step, makes frames as a viewer would get them, and must give all its memory back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from kvviz.build import Backend, build_lanes
from kvviz.config import RunConfig
from kvviz.engine.lanes import Lanes
from kvviz.live.past import Past
from kvviz.live.published import Published, view_lane
from kvviz.records import Snapshot
from kvviz.soak.draw import Round, draw, set_line
from kvviz.soak.memory import growth, resident_bytes
from kvviz.soak.watch import Watch
from kvviz.ui.frames import FrameBuilder

FRAME_STEPS = 32
MOST_GROWTH = 0.02
_MOST_FAILURES = 20
_HISTORY = 512  # steps of a round's series


@dataclass
class Failure:
    """`settings`: those in force, as `--set` takes them; `again` runs the whole round once more."""

    round: int
    step: int
    error: str
    settings: str
    again: str


@dataclass
class Report:
    """Totals so far. steps are of the clock, lane_steps of each lane by name."""

    seed: int
    seconds: float = 0.0
    rounds: int = 0
    steps: int = 0
    frames: int = 0
    frame_bytes: int = 0
    invariants: int = 0
    map_checks: int = 0
    outputs_compared: int = 0
    lane_steps: dict[str, int] = field(default_factory=dict)
    resident: list[int] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)

    @property
    def growth(self) -> float | None:
        return growth(self.resident)

    @property
    def holds(self) -> bool:
        return not self.failures and (self.growth or 0.0) <= MOST_GROWTH

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "growth": self.growth, "holds": self.holds}


def run_soak(
    backend: Backend,
    seconds: float,
    seed: int,
    *,
    numbers: Iterable[int],
    told: Callable[[Report], None] = lambda _: None,
    build: Callable[[RunConfig, Backend], Lanes] = build_lanes,
) -> Report:
    """Rounds of these numbers until so many seconds have passed; `told` after each of them."""
    report = Report(seed)
    began = time.monotonic()
    for number in numbers:
        _serve(draw(seed, number), backend, report, began + seconds, build)
        report.rounds += 1
        report.seconds = time.monotonic() - began
        report.resident.append(resident_bytes())
        told(report)
        if report.seconds >= seconds or len(report.failures) >= _MOST_FAILURES:
            break
    return report


def _serve(
    plan: Round,
    backend: Backend,
    report: Report,
    deadline: float,
    build: Callable[[RunConfig, Backend], Lanes],
) -> None:
    """One round, into the report."""
    step, held = 0, backend.budget.used_bytes
    try:
        lanes = build(plan.config, backend)
        try:
            viewer = _Viewer(lanes)
            for step in range(plan.steps):
                if step in plan.changes:
                    lanes.reconfigure(plan.changes[step])
                _step(lanes, viewer, report)
                if time.monotonic() > deadline:
                    break
            lanes.check_maps()
        finally:
            report.map_checks += sum(e.checks_made for e in lanes.engines.values())
            report.outputs_compared += lanes.comparison.compared
            lanes.close()
        left = backend.budget.used_bytes - held
        assert not left, f"{left:,} bytes of the pools were not given back"
    except Exception as error:  # whatever breaks a round is what a soak is for
        report.failures.append(_failure(plan, step, report.seed, error))


def _step(lanes: Lanes, viewer: _Viewer, report: Report) -> None:
    lanes.step()
    report.steps += 1
    shots = {}
    for name, engine in lanes.engines.items():
        shots[name] = viewer.watch.look(engine)
        report.lane_steps[name] = report.lane_steps.get(name, 0) + 1
    compared = lanes.comparison
    assert compared.equal == compared.compared, (
        f"{compared.compared - compared.equal} of {compared.compared} outputs differ"
    )
    report.invariants += viewer.watch.checked
    viewer.watch.checked = 0
    size = viewer.see(lanes, shots)
    report.frames += 2 * (size > 0)
    report.frame_bytes += size


class _Viewer:
    """Keeps the past and draws frames as the live page does."""

    def __init__(self, lanes: Lanes) -> None:
        self.watch = Watch()
        self._past = Past(list(lanes.engines))
        self._builder = FrameBuilder()

    def see(self, lanes: Lanes, shots: dict[str, Snapshot]) -> int:
        """Bytes of the frames of now and of a past step; 0 when this step has none."""
        kept = self._past.add(lanes)
        for name, shot in shots.items():
            assert kept[name].counters == shot.counters, f"{name}: looking changed something"
        if lanes.step_count % FRAME_STEPS:
            return 0
        views = {name: view_lane(lanes, name, kept[name]) for name in lanes.engines}
        now = Published(
            version=lanes.step_count,
            step=lanes.step_count,
            state="running",
            message="",
            config=lanes.config,
            device="",
            lanes=views,
            compared=lanes.comparison.compared,
            equal=lanes.comparison.equal,
            hues=self._past.hues.of(list(kept.values())),
            first=self._past.first,
            last=self._past.last,
        )
        back = self._past.publication(lanes, (self._past.first + self._past.last) // 2, now)
        return len(self._builder.build(now)) + len(self._builder.build(back))


def _failure(plan: Round, step: int, seed: int, error: Exception) -> Failure:
    return Failure(
        plan.number,
        step,
        f"{type(error).__name__}: {error}",
        set_line(plan.at(step)),
        f"python -m kvviz soak --seed {seed} --round {plan.number}",
    )
