"""Time by address: a column a step, a row a stretch of the pool, coloured as the memory map is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kvviz.records import Snapshot
from kvviz.views.memory_map import cells, palette
from kvviz.views.pixels import SHARED, png
from kvviz.views.theme import Figure, Theme, axis, layout, number

HEIGHT = 240
ROWS = 256


def column(snapshot: Snapshot, hues: Mapping[int, int], colour_by: str = "request") -> np.ndarray:
    """Palette indices uint8 [ROWS] (fewer in a smaller pool): of each stretch its middle slot."""
    codes, _ = cells(snapshot, dict(hues), colour_by, snapshot.head)
    rows = min(ROWS, snapshot.capacity)
    at = (np.arange(rows) * snapshot.capacity + snapshot.capacity // 2) // rows
    return (codes[at] & (SHARED - 1)).astype(np.uint8)


def time_map(
    columns: Sequence[np.ndarray],
    steps: Sequence[int],
    theme: Theme,
    *,
    capacity: int,
    colour_by: str = "request",
) -> Figure:
    """`columns[i]` is the pool at `steps[i]`; the steps are evenly spaced."""
    pixels = np.stack(columns, axis=1)
    every = steps[1] - steps[0] if len(steps) > 1 else 1
    first, last = steps[0] - every / 2, steps[-1] + every / 2
    ticks = np.linspace(0, capacity, 5).astype(int)[:-1]
    return {
        "data": [{"type": "scatter", "x": [None], "y": [None], "hoverinfo": "skip"}],
        "layout": layout(
            theme,
            height=HEIGHT,
            margin=(48, 4, 2, 34),
            dragmode="zoom",
            xaxis=axis(theme, "step", range=[first, last], showgrid=False, tickformat=",d"),
            yaxis=axis(
                theme,
                range=[capacity, 0],
                showgrid=False,
                tickvals=ticks.tolist(),
                ticktext=[number(t) for t in ticks],
            ),
            images=[
                {
                    "source": png(pixels, palette(theme, colour_by)),
                    "xref": "x",
                    "yref": "y",
                    "x": first,
                    "y": 0,
                    "sizex": last - first,
                    "sizey": capacity,
                    "sizing": "stretch",
                    "xanchor": "left",
                    "yanchor": "top",
                    "layer": "below",
                }
            ],
            shapes=[],
        ),
    }
