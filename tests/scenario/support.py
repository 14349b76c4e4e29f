"""Scenarios by hand: from Python values through the text of a file to a report."""

from __future__ import annotations

import json
from typing import Any

from kvviz.scenario.parts import Scenario
from kvviz.scenario.read import read
from kvviz.scenario.replay import report

CONTIGUOUS = {"kind": "contiguous", "fit": "first", "compaction": "off"}
F0 = [["allocate", name, 1024] for name in "abcdefgh"] + [["free", name] for name in "aceg"]


def scenario(**file: Any) -> Scenario:
    return read(json.dumps(file))


def told(**file: Any) -> dict[str, Any]:
    """The report of this file. capacity, layout, and ops or requests."""
    return report(scenario(**file))


def paged(block_size: int = 16, **more: Any) -> dict[str, Any]:
    return {"kind": "paged", "block_size": block_size, **more}


def steps(told: dict[str, Any], key: str = "finished_step") -> list[int | None]:
    return [request[key] for request in told["requests"]]
