"""What the figures found, in words: the accessible names of the charts.

Each sentence says what a reader would take from the picture, with the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.metrics import holes, how_many_fit, paper_breakdown
from kvviz.records import HOLE, REFUSALS, Columns, Snapshot
from kvviz.views.theme import number


def charts_said(snapshots: Mapping[str, Snapshot], ask: int | None) -> dict[str, str]:
    """Of the five charts over a step's snapshots, by the name of the chart."""
    r = ask or 1
    wanted = f"requests of {number(r)} slots"
    return {
        "time": "Free and admissible slots over time. Now " + _each(snapshots, _free),
        "size": f"How many {wanted} fit now: " + _each(snapshots, lambda s: number(_fit(s, r))),
        "holes": "Holes by size: " + _each(snapshots, _holes),
        "unusable": f"Share of the free slots that {wanted} cannot use: "
        + _each(snapshots, lambda s: _unusable(s, r)),
        "bytes": "Where the bytes are, after the PagedAttention paper: "
        + _each(snapshots, lambda s: _shares(s, r)),
    }


def map_said(moment: str, snapshot: Snapshot, ask: int = 0) -> str:
    """One row of the pool: what is free, and in how many pieces."""
    found = f"{moment}: {_free(snapshot)}, {_holes(snapshot)}"
    return f"{found}; a request of {number(ask)} is refused" if ask else found


def columns_said(columns: Columns) -> str:
    """A pool of which no more is known than its columns."""
    sizes = columns.size[columns.owner == HOLE]
    return f"{number(int(sizes.sum()))} slots free, {_pieces(sizes)}"


def run_said(name: str, snapshots: Sequence[Snapshot]) -> str:
    """A lane's whole run, time by address: `snapshots` are evenly spaced over it."""
    free = [s.free for s in snapshots]
    pieces = [len(holes(s)) for s in snapshots]
    worst = snapshots[int(np.argmax(pieces))]
    return (
        f"Time by address, {name}, steps {number(snapshots[0].step)} to "
        f"{number(snapshots[-1].step)}: {number(min(free))} to {number(max(free))} slots free; "
        f"most holes at step {number(worst.step)}: {_holes(worst)}."
    )


def admissible_said(lanes: Mapping[str, Mapping[str, Any]]) -> str:
    """Free beside admissible over a replay, on average."""

    def told(series: Mapping[str, Sequence[float]]) -> str:
        free, admissible = (number(float(np.mean(series[key]))) for key in ("free", "admissible"))
        return f"{free} free, {admissible} admissible"

    return "Free slots, and what requests could have of them, on average: " + _each(
        {name: lane["series"] for name, lane in lanes.items()}, told
    )


def over_trace_said(lanes: Mapping[str, Mapping[str, Any]], name: str) -> str:
    return f"Requests {name} over the trace: " + _each(
        {lane: found["series"][name] for lane, found in lanes.items()},
        lambda values: (
            f"{number(max(values))} at most, {number(float(np.mean(values)))} on average"
        ),
    )


def refusals_said(lanes: Mapping[str, Mapping[str, Any]]) -> str:
    def told(refused: Mapping[str, int]) -> str:
        found = [f"{refused[v]:,} {v}" for v in REFUSALS if refused[v]]
        return ", ".join(found) or "none"

    return "Requests by their first refusal: " + _each(
        {name: lane["refused"] for name, lane in lanes.items()}, told
    )


def waits_said(lanes: Mapping[str, Mapping[str, Any]]) -> str:
    def told(waited: Mapping[str, float | None]) -> str:
        half, most = waited["p50_s"], waited["p99_s"]
        if half is None or most is None:
            return "nobody was admitted"
        return f"half within {half:,.1f} s, 99 % within {most:,.1f} s"

    return "Wait for admission: " + _each(
        {name: lane["waited"] for name, lane in lanes.items()}, told
    )


def lines_said(
    path: str, values: Sequence[Any], lanes: Mapping[str, np.ndarray], title: str
) -> str:
    """A sweep over one setting: each lane's lowest and highest."""
    return f"{title}, over {path}: " + _each(lanes, lambda means: _extremes(means, values))


def heat_said(
    paths: tuple[str, str],
    values: tuple[Sequence[Any], Sequence[Any]],
    table: np.ndarray,
    lane: str,
    title: str,
) -> str:
    """A sweep over two settings: where it is lowest and highest."""
    places = [f"{a} and {b}" for a in values[0] for b in values[1]]
    return f"{title}, over {paths[0]} and {paths[1]}, {lane}: {_extremes(table.ravel(), places)}."


def paper_said(report: Mapping[str, Any], part: str, unit: str) -> str:
    """`part` of every system, published beside measured."""

    def told(system: Mapping[str, Any]) -> str:
        published, measured = system["published"][part], (system["measured"] or {}).get(part)
        here = "not measured yet" if measured is None else f"{measured['mean']:.1f} measured"
        return f"{published:.1f}{unit} published, {here}"

    return f"{part.capitalize()}: " + _each(report["systems"], told)


def memory_said(parts: Mapping[str, float], total_gib: float) -> str:
    """parts: GiB by what they are spent on."""
    spent = ", ".join(f"{name} {gib:,.1f}" for name, gib in parts.items() if gib)
    return f"Of one GPU's {total_gib:,.1f} GiB: {spent}."


def concurrency_said(outcomes: Sequence[Mapping[str, Any]]) -> str:
    def told(outcome: Mapping[str, Any]) -> str:
        measured = outcome["measured"]
        found = "not measured" if measured is None else f"{measured:,.1f} measured"
        return f"{outcome['divided']:,.1f} by plain division, {found}"

    return "Requests at once: " + _each({o["name"]: o for o in outcomes}, told)


def _each(lanes: Mapping[str, Any], told: Any) -> str:
    return "; ".join(f"{name} {told(what)}" for name, what in lanes.items()) + "."


def _free(s: Snapshot) -> str:
    return f"{number(s.free)} of {number(s.capacity)} slots free, {number(s.admissible)} admissible"


def _holes(s: Snapshot) -> str:
    return _pieces(holes(s))


def _pieces(sizes: np.ndarray) -> str:
    if not len(sizes):
        return "no hole"
    one = len(sizes) == 1
    return f"{len(sizes):,} {'hole' if one else 'holes'}, the largest {number(int(sizes.max()))}"


def _fit(s: Snapshot, r: int) -> int:
    return int(how_many_fit(holes(s), s.block, s.free, np.array([r]))[0])


def _unusable(s: Snapshot, r: int) -> str:
    if not s.free:
        return "nothing is free"
    used = r * _fit(s, r)
    return f"{max(0.0, 1 - used / s.free):.0%}".replace("%", " %")


def _shares(s: Snapshot, r: int) -> str:
    parts = paper_breakdown(s, r)
    named = (
        ("token states", parts.written),
        ("reserved", parts.reserved),
        ("internal waste", parts.internal),
        ("external waste", parts.external),
    )
    return ", ".join(f"{name} {100 * count / parts.total:.0f} %" for name, count in named)


def _extremes(found: np.ndarray, places: Sequence[Any]) -> str:
    known = np.flatnonzero(~np.isnan(found))
    if not len(known):
        return "not known"
    low, high = known[np.argmin(found[known])], known[np.argmax(found[known])]
    if found[low] == found[high]:
        return f"{found[low]:.4g} everywhere"
    return f"lowest {found[low]:.4g} at {places[low]}, highest {found[high]:.4g} at {places[high]}"
