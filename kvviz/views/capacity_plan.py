"""A capacity plan: how a GPU's memory is spent, and how many requests of a mix run at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvviz.capacity.plan import GiB, Plan
from kvviz.views.theme import Figure, Theme, axis, layout, legible

BAR_HEIGHT = 140
ROW_HEIGHT = 62
# Measured is solid, modelled is hatched, in every chart of the plan
MODELLED = "/"


def gpu_memory(plan: Plan, theme: Theme) -> Figure:
    """One stacked bar of one GPU, in GiB. Raises AssertionError for a plan without a budget."""
    parts, total = memory_parts(plan)
    looks = (
        (theme.reserved, ""),
        (theme.quiet, MODELLED),
        (theme.internal, ""),
        (theme.written, ""),
        (theme.hole, ""),
    )
    return {
        "data": [
            _part(name, size, *look, total, theme)
            for (name, size), look in zip(parts.items(), looks, strict=True)
            if size
        ],
        "layout": layout(
            theme,
            height=BAR_HEIGHT,
            margin=(8, 8, 40, 44),
            barmode="stack",
            showlegend=True,
            legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0,
                    "traceorder": "normal", "font": {"size": 11}},
            xaxis=axis(theme, "GiB of one GPU", range=[0, total], nticks=8),
            yaxis=axis(theme, showticklabels=False, showgrid=False),
        ),
    }  # fmt: skip


def memory_parts(plan: Plan) -> tuple[dict[str, float], float]:
    """(GiB by what they are spent on, GiB in all) of one GPU. Raises AssertionError for a plan
    without a budget."""
    budget = plan.budget
    assert budget is not None, "a pool of given size has no GPU to draw"
    parts = {
        "weights": budget.weights_bytes,
        "activation peak (modelled)": budget.activation_bytes,
        "side buffers": budget.side_bytes,
        "KV pool": budget.pool_bytes,
        "not used": budget.unused_bytes,
    }
    return {name: size / GiB for name, size in parts.items()}, budget.total_bytes / GiB


def concurrency(outcomes: Sequence[Mapping[str, Any]], theme: Theme) -> Figure:
    """Requests at once by method: plain division hatched, the replay solid. `outcomes` as in the
    report; what was not measured has no bar."""
    names = [_broken(o["name"]) for o in outcomes]
    colours = [theme.lanes[o["name"].split(",")[0]] for o in outcomes]
    most = max([o["divided"] for o in outcomes] + [o["measured"] or 0 for o in outcomes])
    series = [
        ("plain division (modelled)", [o["divided"] for o in outcomes], MODELLED, 0.35),
        ("replayed (measured)", [o["measured"] for o in outcomes], "", 1.0),
    ]
    return {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "name": title,
                "y": names,
                "x": values,
                "text": ["" if v is None else f"{v:,.1f}" for v in values],
                "textposition": "outside",
                "cliponaxis": False,
                "marker": {
                    "color": colours,
                    "opacity": opacity,
                    "line": {"width": 0},
                    "pattern": {"shape": pattern, "size": 6, "solidity": 0.35},
                },
                "hovertemplate": "%{x:,.1f} requests at once<extra>" + title + "</extra>",
            }
            for title, values, pattern, opacity in series
        ],
        "layout": layout(
            theme,
            height=70 + ROW_HEIGHT * len(names),
            margin=(84, 44, 6, 36),
            barmode="group",
            bargap=0.28,
            xaxis=axis(theme, "requests at once", range=[0, most * 1.12], nticks=8),
            yaxis=axis(theme, autorange="reversed", showgrid=False),
        ),
    }


def _part(
    title: str, size: float, colour: str, pattern: str, total: float, theme: Theme
) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": title,
        "y": [""],
        "x": [size],
        "text": [f"{size:,.1f}" if size > 0.05 * total else ""],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "insidetextfont": {"color": legible(colour)},
        "textangle": 0,
        "marker": {
            "color": colour,
            "line": {"width": 1, "color": theme.paper},
            "pattern": {"shape": pattern, "size": 6, "solidity": 0.3},
        },
        "hovertemplate": f"{title}: %{{x:,.2f}} GiB, {100 * size / total:.1f} %<extra></extra>",
    }


def _broken(name: str) -> str:
    return name.replace(", ", "<br>")
