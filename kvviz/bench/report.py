"""A bench's JSON, read back: anybody may have written it, so nothing in it is taken on trust."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvviz.bench.result import Measured
from kvviz.errors import BenchError

LAST_RUN = Path(__file__).parents[2] / "data" / "bench.json"
MOST_BYTES = 1 << 20
MOST_FIGURES = 1000
MOST_LETTERS = 300  # of a name or a remark
_LARGEST = 1e15
_NUMBERS = ("at_least", "at_most", "floor")


@dataclass(frozen=True)
class Report:
    """`about`: machine, kvviz, when, load and command, as far as they are told. `left_out`: why a
    bench did not run, by its name."""

    about: dict[str, str]
    figures: dict[str, tuple[Measured, ...]]
    left_out: dict[str, str]


def read(data: bytes) -> Report:
    """Raises BenchError, in one sentence. Whether a target holds is counted anew."""
    if len(data) > MOST_BYTES:
        raise BenchError(f"this file has {len(data):,} bytes; a bench's JSON has at most 1 MiB.")
    try:
        given = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BenchError(
            "this is no JSON. `python -m kvviz bench --json FILE` writes such a file."
        ) from error
    benches = _object(_object(given, "the file").get("figures"), "figures")
    figures = {_text(name): _figures(found, _text(name)) for name, found in benches.items()}
    count = sum(len(found) for found in figures.values())
    if not 0 < count <= MOST_FIGURES:
        raise BenchError(f"figures holds {count:,} of them; 1 to {MOST_FIGURES:,} were expected.")
    about = ("machine", "kvviz", "when", "load", "command")
    left_out = _object(given.get("left_out", {}), "left_out")
    return Report(
        {key: _text(given[key]) for key in about if key in given},
        figures,
        {_text(name): _text(why) for name, why in left_out.items()},
    )


def targets(figures: Sequence[Measured]) -> tuple[int, int]:
    """(targets held, targets missed)"""
    holds = [figure.holds for figure in figures]
    return holds.count(True), holds.count(False)


def _figures(found: Any, bench: str) -> tuple[Measured, ...]:
    if not isinstance(found, list):
        raise BenchError(f"figures.{bench} is no list.")
    return tuple(_figure(each, f"figures.{bench}[{at}]") for at, each in enumerate(found))


def _figure(given: Any, where: str) -> Measured:
    each = _object(given, where)
    bounds = {name: _number(each.get(name), f"{where}.{name}") for name in _NUMBERS}
    value = _number(each.get("value"), f"{where}.value")
    if value is None or "name" not in each:
        raise BenchError(f"{where} has no name or no value.")
    if bounds["at_least"] is not None and bounds["at_most"] is not None:
        raise BenchError(f"{where} has two targets, at_least and at_most; one was expected.")
    unit, floor_of = _text(each.get("unit", "")), _text(each.get("floor_of", ""))
    return Measured(_text(each["name"]), value, unit, floor_of=floor_of, **bounds)


def _object(given: Any, where: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise BenchError(f"{where} is no JSON object, or is missing.")
    return given


def _number(given: Any, where: str) -> float | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise BenchError(f"{where} is no number.")
    if not abs(given) <= _LARGEST:  # nor is it NaN
        raise BenchError(f"{where} is out of range.")
    return float(given)


def _text(given: Any) -> str:
    """As one line of bounded length."""
    words = " ".join(str(given).split()) if isinstance(given, str | int | float) else ""
    return words if len(words) <= MOST_LETTERS else words[: MOST_LETTERS - 1] + "…"
