"""The unusable free space index over the size of the request, now."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kvviz.metrics import holes, unusable_curve
from kvviz.records import Snapshot
from kvviz.views.theme import Figure, Theme, axis, layout

HEIGHT = 214
_SIZES = 128


def unusable(
    snapshots: Mapping[str, Snapshot], theme: Theme, *, largest: int, ask: int | None
) -> Figure:
    """Share of the free slots that requests of r can't use: 0 all of it serves them, 1 none."""
    sizes = np.geomspace(16, max(largest, 32), _SIZES).astype(np.int64)
    if ask:  # the curve jumps from size to size: at the line it must be exact
        sizes = np.append(sizes, np.clip(ask, sizes[0], sizes[-1]))
    sizes = np.unique(sizes)
    data = []
    for name, snapshot in snapshots.items():
        curve = unusable_curve(
            holes(snapshot), snapshot.block, snapshot.free, sizes, single=snapshot.single
        )
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "x": sizes.tolist(),
                "y": np.round(curve, 3).tolist(),
                "line": {"color": theme.lanes[name], "width": 2.2},
                "hovertemplate": "%{y:.3f} at %{x:,} slots<extra>" + name + "</extra>",
            }
        )
    ask_line = {
        "type": "line",
        "xref": "x",
        "yref": "paper",
        "x0": ask,
        "x1": ask,
        "y0": 0,
        "y1": 1,
        "line": {"color": theme.alarm, "width": 1.4, "dash": "dash"},
    }
    return {
        "data": data,
        "layout": layout(
            theme,
            height=HEIGHT,
            margin=(44, 8, 6, 34),
            hovermode="x",
            xaxis=axis(
                theme,
                "request size r (slots)",
                type="log",
                range=[np.log10(sizes[0]), np.log10(sizes[-1])],
                tickvals=[16, 64, 256, 1024, 4096, 16384, 65536],
                ticktext=["16", "64", "256", "1k", "4k", "16k", "64k"],
            ),
            yaxis=axis(theme, range=[-0.03, 1.05], nticks=6),
            shapes=[ask_line] if ask else [],
        ),
    }
