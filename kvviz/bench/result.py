"""One measured figure, its target and its floor, and how they are printed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple


class LeftOut(Exception):
    """A bench needs what is not here; the message says what."""


class Measured(NamedTuple):
    """`at_least` or `at_most` may be None: a figure without a target is context.

    floor: what no code on this machine can beat, in the figure's unit; floor_of: how it is made.
    """

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    floor: float | None = None
    floor_of: str = ""

    @property
    def holds(self) -> bool | None:
        if self.at_least is not None:
            return self.value >= self.at_least
        if self.at_most is not None:
            return self.value <= self.at_most
        return None

    def as_dict(self) -> dict[str, Any]:
        return {**self._asdict(), "holds": self.holds}

    def line(self) -> str:
        target = ""
        if self.at_least is not None:
            target = f"at least {self.at_least:g}"
        elif self.at_most is not None:
            target = f"at most {self.at_most:g}"
        word = {True: "holds", False: "MISSED", None: ""}[self.holds]
        told = f"  {self.name:58} {self.value:12,.2f} {self.unit:10} {target:16} {word:6}"
        if self.floor is not None:
            told += f" floor {self.floor:,.3g}: {self.floor_of}"
        return told.rstrip()


def milliseconds(act: Callable[[], object], rounds: int) -> float:
    """Median time of `act`, after one call that is not counted."""
    act()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def cpu_milliseconds(act: Callable[[], object], rounds: int) -> float:
    """The same in processor time of this process: what else the machine does is not in it."""
    act()
    times = []
    for _ in range(rounds):
        began = time.process_time()
        act()
        times.append(time.process_time() - began)
    return statistics.median(times) * 1e3
