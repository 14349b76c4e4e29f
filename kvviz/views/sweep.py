"""A sweep's result: a heat map over two settings, a line over one; a panel or a line a lane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kvviz.views.theme import Figure, Theme, as_text, axis, blend, layout

HEIGHT = 380


def lines(
    path: str,
    values: Sequence[Any],
    lanes: Mapping[str, np.ndarray],
    theme: Theme,
    *,
    title: str,
    by_seed: Mapping[str, np.ndarray] | None = None,
) -> Figure:
    """`lanes`: means over seeds, float [values] each; NaN leaves a gap. `by_seed` [values, seeds]
    gives each point its range as an error bar. Values stand at equal distances, as they were
    given, for most of them are names or powers of two."""
    names = [as_text(str(value)) for value in values]
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": lane,
                "x": names,
                "y": _numbers(means),
                "line": {"color": theme.lanes[lane], "width": 2},
                "marker": {"size": 7},
                "error_y": _range(means, (by_seed or {}).get(lane), theme.lanes[lane]),
                "hovertemplate": f"{path}=%{{x}}: %{{y:.4~g}}<extra>{lane}</extra>",
            }
            for lane, means in lanes.items()
        ],
        "layout": layout(
            theme,
            height=HEIGHT,
            margin=(56, 12, 30, 44),
            showlegend=True,
            legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
            xaxis=axis(theme, path, type="category", categoryorder="array", categoryarray=names),
            yaxis=axis(theme, title),
        ),
    }


def heat(
    paths: tuple[str, str],
    values: tuple[Sequence[Any], Sequence[Any]],
    table: np.ndarray,
    lane: str,
    theme: Theme,
    *,
    title: str,
    limits: tuple[float, float],
) -> Figure:
    """`table` float [len(values[0]), len(values[1])]; NaN stays empty. `limits`: of the colours,
    the same for each lane, so that panels compare."""
    rows, columns = ([as_text(str(value)) for value in axis_values] for axis_values in values)
    numbers = [_numbers(row) for row in table]
    low, high = limits
    return {
        "data": [
            {
                "type": "heatmap",
                "x": columns,
                "y": rows,
                "z": numbers,
                "text": [["" if v is None else f"{v:.3g}" for v in row] for row in numbers],
                "texttemplate": "%{text}",
                "zmin": low,
                "zmax": high,
                "colorscale": [
                    [0, blend(theme.lanes[lane], theme.paper, 0.08)],
                    [1, blend(theme.lanes[lane], theme.paper, 0.85)],
                ],
                "xgap": 2,
                "ygap": 2,
                "colorbar": {"thickness": 10, "outlinewidth": 0, "tickfont": {"size": 11}},
                "hovertemplate": f"{paths[0]}=%{{y}}<br>{paths[1]}=%{{x}}<br>"
                f"%{{z:.4~g}}<extra>{lane}</extra>",
            }
        ],
        "layout": layout(
            theme,
            height=max(220, 110 + 34 * len(rows)),
            margin=(70, 8, 34, 44),
            title={"text": f"{lane}: {title}", "font": {"size": 13}, "x": 0, "xanchor": "left"},
            xaxis=axis(theme, paths[1], type="category", showgrid=False),
            yaxis=axis(
                theme, paths[0], type="category", showgrid=False, autorange="reversed",
                automargin=True,
            ),
        ),
    }  # fmt: skip


def colour_limits(tables: Sequence[np.ndarray]) -> tuple[float, float]:
    """Of all that is known in all of them, so that equal colours mean equal numbers."""
    known = np.concatenate([table[~np.isnan(table)] for table in tables])
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    return (low, high) if high > low else (low, low + 1)


def _numbers(values: np.ndarray) -> list[float | None]:
    return [None if np.isnan(value) else round(float(value), 6) for value in values]


def _range(means: np.ndarray, seeds: np.ndarray | None, colour: str) -> dict[str, Any]:
    if seeds is None or seeds.shape[1] < 2:
        return {"visible": False}
    known = ~np.isnan(seeds)
    high = np.where(known, seeds, -np.inf).max(axis=1) - means
    low = means - np.where(known, seeds, np.inf).min(axis=1)
    return {
        "type": "data",
        "symmetric": False,
        "array": [v if np.isfinite(v) else 0 for v in high.tolist()],
        "arrayminus": [v if np.isfinite(v) else 0 for v in low.tolist()],
        "thickness": 1,
        "width": 3,
        "color": colour,
    }
