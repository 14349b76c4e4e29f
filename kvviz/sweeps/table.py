"""A sweep's result as rows, CSV, aligned text, and means over seeds."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

import numpy as np

# What a person compares first: {name in the report: title}
FIGURES = {
    "slot_usage.mean": "Slot usage, mean (share of the pool)",
    "running.mean": "Requests running, mean",
    "external_fragmentation.mean": "External fragmentation, mean",
    "false_refusals": "False refusals (free >= need)",
    "refused.capacity": "Refused for capacity",
    "finished": "Requests finished",
    "generated_tokens": "Tokens generated",
    "preempted": "Preemptions",
    "recomputed_tokens": "Tokens computed anew",
    "slots_moved": "Slots moved",
    "free.mean": "Free slots, mean",
    "largest_admissible.mean": "Largest admissible, mean (slots)",
}
_SHOWN = ("slot_usage.mean", "running.mean", "external_fragmentation.mean", "false_refusals",
          "finished")  # fmt: skip


def rows(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row a cell and lane: the axes' settings, seed, lane, and every figure."""
    return [
        {**cell["settings"], "seed": cell["seed"], "lane": lane, **figures}
        for cell in result["cells"]
        for lane, figures in (cell["lanes"] or {}).items()
    ]


def as_csv(result: Mapping[str, Any]) -> str:
    """Figures that are not applicable are empty."""
    found = rows(result)
    if not found:
        return ""
    names = list(dict.fromkeys(name for row in found for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return out.getvalue()


def by_seed(result: Mapping[str, Any], lane: str, figure: str) -> np.ndarray:
    """float, an axis of the array for each axis of the grid, and a last one for the seeds; NaN
    where nothing is known."""
    shape = [len(values) for values in result["axes"].values()]
    found = np.array([_value(cell, lane, figure) for cell in result["cells"]], float)
    return found.reshape(*shape, len(result["seeds"]))


def mean_over_seeds(result: Mapping[str, Any], lane: str, figure: str) -> np.ndarray:
    """float, an axis of the array for each axis of the grid; NaN where nothing is known."""
    table = by_seed(result, lane, figure)
    known = ~np.isnan(table)
    totals = np.where(known, table, 0).sum(axis=-1)
    counts = known.sum(axis=-1)
    return np.where(counts > 0, totals / np.maximum(counts, 1), np.nan)


def text(result: Mapping[str, Any]) -> str:
    """A line a cell and lane, a few figures of each, means over the seeds; what failed below."""
    axes = result["axes"]
    lines = [(*axes, "lane", *_SHOWN)]
    means = {
        (lane, figure): mean_over_seeds(result, lane, figure)
        for lane in result["lanes"]
        for figure in _SHOWN
    }
    for at in np.ndindex(*(len(values) for values in axes.values())):
        values = [str(axis[i]) for axis, i in zip(axes.values(), at, strict=True)]
        for lane in result["lanes"]:
            numbers = [_cell(float(means[lane, figure][at])) for figure in _SHOWN]
            lines.append((*values, lane, *numbers))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    table = ["  ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) for line in lines]
    return "\n".join([*table, "", *_notes(result)])


def _notes(result: Mapping[str, Any]) -> list[str]:
    cells = result["cells"]
    missing = sum(cell["lanes"] is None for cell in cells)
    notes = [
        f"{len(cells):,} cells of {result['steps']:,} steps, means over {len(result['seeds'])} "
        f"seed(s): {result['ran']:,} run now, {result['read_from_disk']:,} read from disk, "
        f"{missing:,} missing"
    ]
    notes += [
        f"failed: {cell['settings']} seed {cell['seed']}: {cell['failed']}"
        for cell in cells
        if cell["failed"]
    ]
    return notes


def _value(cell: Mapping[str, Any], lane: str, figure: str) -> float:
    value = (cell["lanes"] or {}).get(lane, {}).get(figure)
    return np.nan if value is None else value


def _cell(value: float) -> str:
    if np.isnan(value):
        return "n/a"
    return f"{value:,.3f}".rstrip("0").rstrip(".")
