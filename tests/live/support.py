"""Waiting without fixed sleeps, lanes that can be made to fail, publications without a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from kvviz.build import build_lanes
from kvviz.config import RunConfig
from kvviz.engine.lanes import Lanes
from kvviz.live.hues import HueBook
from kvviz.live.published import Published, view_lane
from kvviz.live.runner import LiveRunner
from tests.helpers import small

DEADLINE = 15.0


def until(condition: Callable[[], Any], seconds: float = DEADLINE) -> None:
    """Return as soon as the condition holds; fail when it does not in time."""
    end = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        pause.wait(0.002)


def dry(changes: dict[str, Any] | None = None) -> RunConfig:
    return small({"dry": True, **(changes or {})})


class Builder:
    """Builds dry lanes and keeps them; `fault` is raised by the next step of every lane."""

    def __init__(self) -> None:
        self.built: list[Lanes] = []
        self.closed: list[Lanes] = []
        self.fault: Exception | None = None
        self.refuses: Exception | None = None

    def __call__(self, config: RunConfig) -> Lanes:
        if self.refuses is not None:
            raise self.refuses
        lanes = build_lanes(config.replace({"dry": True}))
        forward = next(iter(lanes.engines.values())).forward
        close = lanes.close

        class Faulty(type(forward)):
            def __call__(inner, batch, journal):
                if self.fault is not None:
                    raise self.fault
                return super().__call__(batch, journal)

        def remember() -> None:
            self.closed.append(lanes)
            close()

        for engine in lanes.engines.values():
            engine.forward = Faulty()
        lanes.close = remember
        self.built.append(lanes)
        return lanes

    @property
    def steps(self) -> int:
        """Steps that the newest lanes have made."""
        return self.built[-1].step_count if self.built else 0


def spin(runner: LiveRunner, turns: int = 20) -> None:
    """Wake a paused runner's thread often: one that steps when it must not would do it now."""
    for _ in range(turns):
        runner.pause()
        until(runner._commands.empty)


def hold(runner: LiveRunner) -> Published:
    """Pause, wait until it is shown, and return the picture."""
    runner.pause()
    until(lambda: runner.latest().state == "paused")
    return runner.latest()


def publish(
    config: RunConfig, steps: int, *, version: int = 1, state: str = "running"
) -> Published:
    """What a runner would publish after so many dry steps."""
    lanes = build_lanes(config)
    for _ in range(steps):
        lanes.step()
    views = {name: view_lane(lanes, name) for name in lanes.engines}
    return Published(
        version,
        lanes.step_count,
        state,
        "",
        config,
        "CPU",
        views,
        0,
        0,
        lanes.stream.hash,
        lanes.stream.drawn,
        lanes.stream.scaling,
        HueBook().update([view.snapshot for view in views.values()]),
    )
