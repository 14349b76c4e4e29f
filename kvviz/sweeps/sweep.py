"""Runs a grid: what is kept is read, the rest runs on a pool, and every result is kept."""

from __future__ import annotations

from typing import Any

from kvviz import __version__
from kvviz.sweeps.cell import run_cell
from kvviz.sweeps.grid import Grid, Place
from kvviz.sweeps.job import Cancelled, Progress, Told
from kvviz.sweeps.kept import Kept
from kvviz.sweeps.pool import Pool, run_tasks


def run_sweep(
    grid: Grid,
    pool: Pool,
    kept: Kept,
    *,
    told: Told = lambda _: None,
    cancelled: Cancelled = lambda: False,
) -> dict[str, Any]:
    """The table as a dict that JSON holds: axes, seeds, steps, the base's settings, and a row a
    cell: settings, seed, lanes (None for one that failed or was not run).

    `told` is called in this thread, at first and whenever a cell is done.
    """
    cells = {place.cell.key: place.cell for place in grid.places}
    results = {key: found for key in cells if (found := kept.get(key)) is not None}
    read = len(results)
    told(Progress(read, read, 0, len(cells)))

    def done(key: str, result: dict[str, Any]) -> None:
        kept.put(key, result)
        results[key] = result
        told(Progress(len(results), read, 0, len(cells)))

    todo = {key: cell for key, cell in cells.items() if key not in results}
    failed = run_tasks(run_cell, todo, pool, done=done, cancelled=cancelled) if todo else {}
    told(Progress(len(results), read, len(failed), len(cells)))
    return {
        "version": __version__,
        "axes": {path: list(values) for path, values in grid.axes.items()},
        "seeds": list(grid.seeds),
        "steps": grid.steps,
        "lanes": list(grid.base.lane_names),
        "config": grid.base.as_dict(),
        "cells": [_row(place, results, failed) for place in grid.places],
        "ran": len(results) - read,
        "read_from_disk": read,
        "complete": len(results) == len(cells),
    }


def _row(place: Place, results: dict[str, Any], failed: dict[str, str]) -> dict[str, Any]:
    key = place.cell.key
    result = results.get(key, {})
    return {
        "settings": dict(place.settings),
        "seed": place.seed,
        "key": key,
        "stream_hash": result.get("stream_hash"),
        "lanes": result.get("lanes"),
        "failed": failed.get(key),
    }
