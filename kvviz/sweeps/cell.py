"""One cell of a sweep: a dry run, and the numbers of its lanes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvviz import __version__
from kvviz.build import build_lanes
from kvviz.config import RunConfig
from kvviz.report import TIMED, lane_report

Figures = dict[str, float | None]


@dataclass(frozen=True)
class Cell:
    """A dry run of so many steps. Its result follows from `key` alone."""

    config: RunConfig
    steps: int

    @property
    def key(self) -> str:
        """Of every setting, the steps and the version of kvviz."""
        told = {"config": self.config.as_dict(), "steps": self.steps, "version": __version__}
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]


def run_cell(cell: Cell) -> dict[str, Any]:
    """{"lanes": {lane: {figure: value}}, "stream_hash"}: the report's numbers, those that are
    measured left out, for they differ from one worker to the next."""
    lanes = build_lanes(cell.config, history=cell.steps)
    try:
        for _ in range(cell.steps):
            lanes.step()
        return {
            "lanes": {name: _figures(lane_report(e)) for name, e in lanes.engines.items()},
            "stream_hash": lanes.stream.hash,
        }
    finally:
        lanes.close()


def _figures(report: Mapping[str, Any]) -> Figures:
    """Flat: {"free": {"mean": 1}} becomes {"free.mean": 1}."""
    flat: Figures = {}
    for name, value in report.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": number for inner, number in value.items()}
        elif name not in TIMED:
            flat[name] = value
    return flat
