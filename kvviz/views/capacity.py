"""Free versus admissible: over time, and over the size of the request, now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from kvviz.metrics import bound_fit, holes, how_many_fit
from kvviz.records import REFUSALS, Event, Snapshot
from kvviz.views.theme import SYMBOLS, Figure, Theme, axis, faded, layout

HEIGHT = 214
_MARGIN = (44, 8, 6, 34)
_POINTS = 300


def over_time(
    lanes: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]],
    refusals: Mapping[str, Sequence[Event]],
    theme: Theme,
    *,
    window: int,
    capacity: int,
    moves: Mapping[str, Sequence[Event]] = MappingProxyType({}),
    cursor: int | None = None,
) -> Figure:
    """`lanes`: name -> (step, free, admissible), each [steps]. The gap between the two is
    shaded: memory that is free and that no request can use. A mark for each first refusal lies
    at the size that was asked for, so a mark inside the gap is a false refusal.
    `moves`: compactions that a request waited for. `cursor`: the step that the maps show, where
    that is not the newest. What was done in step n is drawn where the maps show it: at n + 1."""
    data: list[dict] = []
    last = 0
    for name, (step, free, admissible) in lanes.items():
        colour = theme.lanes[name]
        thin = _thin(step)
        last = max(last, int(step[-1]) + 1 if len(step) else 0)
        x = (step[thin] + 1).tolist()
        gap = bool((free != admissible).any())
        if gap:
            data.append(_line(x, free[thin], colour, f"{name}: free", width=1.2, dash="dot"))
        data.append(
            _line(
                x,
                admissible[thin],
                colour,
                f"{name}: admissible" if gap else f"{name}: free = admissible",
                width=2.2,
                fill="tonexty" if gap else None,
                fillcolor=faded(colour, 0.16),
            )
        )
    for name, events in refusals.items():
        data += _marks(events, theme.lanes[name], name, solid=name == next(iter(refusals)))
    for name, events in moves.items():
        data += _compactions(events, theme.lanes[name], name)
    top = max([1.0, *(float(free.max()) for _, free, _ in lanes.values() if len(free))])
    asked = [event.need for events in refusals.values() for event in events]
    top = min(capacity, 1.06 * max([top, *asked]))
    return {
        "data": data,
        "layout": layout(
            theme,
            height=HEIGHT,
            margin=_MARGIN,
            hovermode="closest",
            xaxis=axis(
                theme,
                "step",
                range=[max(0, last - window), max(last, window // 3)],
                tickformat=",d",
                nticks=6,
            ),
            yaxis=axis(theme, range=[0, top], tickformat="~s", nticks=6),
            shapes=[] if cursor is None else [_upright(cursor, theme.text, "solid")],
        ),
    }


def over_size(
    snapshots: Mapping[str, Snapshot], theme: Theme, *, largest: int, ask: int | None
) -> Figure:
    """How many requests of each size fit now. Dashed: the contiguous lane if all its free slots
    were one hole (modelled; the solid lines follow from the maps)."""
    sizes = np.unique(np.geomspace(16, max(largest, 32), 64).astype(np.int64))
    data = []
    for name, snapshot in snapshots.items():
        sizes_of_holes = holes(snapshot)
        free = int(sizes_of_holes.sum())
        count = how_many_fit(sizes_of_holes, snapshot.block, free, sizes, single=snapshot.single)
        data.append(_counts(sizes, count, theme.lanes[name], name))
        if not snapshot.paged:
            data.append(
                _counts(
                    sizes,
                    bound_fit(free, sizes),
                    theme.lanes[name],
                    f"{name} if compacted",
                    dash="dash",
                    width=1.2,
                )
            )
    shapes = [_upright(ask, theme.alarm, "dash")] if ask else []
    return {
        "data": data,
        "layout": layout(
            theme,
            height=HEIGHT,
            margin=_MARGIN,
            hovermode="x",
            xaxis=axis(
                theme,
                "request size r (slots)",
                type="log",
                range=[np.log10(sizes[0]), np.log10(sizes[-1])],
                tickvals=[16, 64, 256, 1024, 4096, 16384, 65536],
                ticktext=["16", "64", "256", "1k", "4k", "16k", "64k"],
            ),
            yaxis=axis(
                theme,
                type="log",
                range=[np.log10(0.45), np.log10(_top(data))],
                tickvals=[0.5, 1, 3, 10, 30, 100, 300, 1000, 3000],
                ticktext=["0", "1", "3", "10", "30", "100", "300", "1k", "3k"],
            ),
            shapes=shapes,
        ),
    }


def _top(data: list[dict]) -> float:
    return max(2.0, 1.3 * max(max(trace["y"]) for trace in data))


def _counts(
    sizes: np.ndarray,
    counts: np.ndarray,
    colour: str,
    name: str,
    *,
    dash: str = "solid",
    width: float = 2.2,
) -> dict:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": sizes.tolist(),
        "y": np.maximum(counts, 0.5).tolist(),
        "customdata": counts.tolist(),
        "line": {"color": colour, "width": width, "dash": dash, "shape": "hv"},
        "hovertemplate": "%{customdata} of %{x:,} slots<extra>" + name + "</extra>",
    }


def _line(
    x: list[int],
    y: np.ndarray,
    colour: str,
    name: str,
    *,
    width: float,
    dash: str = "solid",
    fill: str | None = None,
    fillcolor: str = "",
) -> dict:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y.tolist(),
        "line": {"color": colour, "width": width, "dash": dash},
        "fill": fill or "none",
        "fillcolor": fillcolor or None,
        "hovertemplate": "%{y:,} slots at step %{x:,}<extra>" + name + "</extra>",
    }


def _marks(events: Sequence[Event], colour: str, name: str, *, solid: bool) -> list[dict]:
    traces = []
    for verdict in REFUSALS:
        chosen = [e for e in events if e.verdict == verdict][:120]
        if not chosen:
            continue
        small = verdict == "queued"
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"{name}: {verdict}",
                "x": [e.step + 1 for e in chosen],
                "y": [e.need for e in chosen],
                "customdata": [[e.request, e.need, e.free, e.largest] for e in chosen],
                "marker": {
                    "symbol": SYMBOLS[verdict] + ("" if solid else "-open"),
                    "size": 4 if small else 7,
                    "color": colour,
                    "opacity": 0.45 if small else 0.95,
                    "line": {"width": 0 if solid else 1, "color": colour},
                },
                "hovertemplate": "request %{customdata[0]}: " + verdict + "<br>needs "
                "%{customdata[1]:,}, free %{customdata[2]:,}, largest "
                "%{customdata[3]:,}<br>step %{x:,}<extra>" + name + "</extra>",
            }
        )
    return traces


def _compactions(events: Sequence[Event], colour: str, name: str) -> list[dict]:
    """A mark for each request that waited for slots to be moved, at the size it asked for."""
    chosen = [e for e in events if e.request >= 0][:120]
    if not chosen:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"{name}: moved",
            "x": [e.step + 1 for e in chosen],
            "y": [e.need for e in chosen],
            "customdata": [[e.request, e.need, e.slots] for e in chosen],
            "marker": {"symbol": "diamond-open", "size": 7, "color": colour},
            "hovertemplate": "request %{customdata[0]} waited for a move<br>"
            "needs %{customdata[1]:,}, %{customdata[2]:,} slots were copied<br>step %{x:,}<extra>"
            + name
            + "</extra>",
        }
    ]


def _upright(x: float, colour: str, dash: str) -> dict:
    return {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": x,
        "x1": x,
        "y0": 0,
        "y1": 1,
        "line": {"color": colour, "width": 1.4, "dash": dash},
    }


def _thin(step: np.ndarray) -> slice:
    """Every n-th step and the newest: the frame has no room for more points than pixels."""
    every = max(1, len(step) // _POINTS)
    return slice((len(step) - 1) % every if len(step) else 0, None, every)
