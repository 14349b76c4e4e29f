"""Hole histogram: how many holes there are of each size, in log2 bins."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kvviz.metrics import hole_histogram, holes
from kvviz.records import Snapshot
from kvviz.views.theme import Figure, Theme, axis, faded, layout

HEIGHT = 214


def histogram(snapshots: Mapping[str, Snapshot], theme: Theme, *, ask: int | None) -> Figure:
    """A bar a bin and lane; a dashed line at the slots that the next request asks for. In a
    paged pool free blocks that touch count as one hole, and their size does not matter."""
    data = []
    capacity = max(snapshot.capacity for snapshot in snapshots.values())
    tallest = 4
    for name, snapshot in snapshots.items():
        edges, counts = hole_histogram(holes(snapshot), capacity)
        tallest = max(tallest, int(counts.max()))
        colour = theme.lanes[name]
        paged = snapshot.paged
        data.append(
            {
                "type": "bar",
                "name": name,
                "x": list(range(len(edges))),
                "y": counts.tolist(),
                "marker": {"color": faded(colour, 0.35) if paged else colour, "line": {"width": 0}},
                "customdata": [[f"{e:,}", f"{2 * e - 1:,}"] for e in edges.tolist()],
                "hovertemplate": "%{y} holes of %{customdata[0]} to %{customdata[1]} slots"
                "<extra>" + name + "</extra>",
            }
        )
    bins = int(capacity).bit_length()
    shapes = []
    if ask:
        at = float(np.log2(ask)) - 0.5
        shapes = [
            {
                "type": "line",
                "xref": "x",
                "yref": "paper",
                "x0": at,
                "x1": at,
                "y0": 0,
                "y1": 1,
                "line": {"color": theme.alarm, "width": 1.4, "dash": "dash"},
            }
        ]
    ticks = list(range(0, bins, 3))
    return {
        "data": data,
        "layout": layout(
            theme,
            height=HEIGHT,
            margin=(30, 8, 6, 34),
            barmode="group",
            hovermode="x",
            bargap=0.18,
            xaxis=axis(
                theme,
                "hole size (slots)",
                tickvals=ticks,
                ticktext=[_short(1 << t) for t in ticks],
                range=[-0.6, bins - 0.4],
            ),
            yaxis=axis(theme, range=[0, 1.1 * tallest], nticks=5, tickformat=",d"),
            shapes=shapes,
        ),
    }


def _short(value: int) -> str:
    return str(value) if value < 1024 else f"{value // 1024}k"
