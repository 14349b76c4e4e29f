"""A bench's figures beside their targets: a bar is value over target, a line stands at 1.

For `at least` the bar must reach the line, for `at most` it must not pass it; whether it holds is
told by symbol and word, not by the side. An open diamond is the floor: what no code can beat.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Protocol

from kvviz.views.theme import Figure, Theme, axis, layout

ROW = 64  # px a figure: two lines of words over a bar
_LONGEST = 3.0  # targets; a longer bar is cut, and says so
_LETTERS = 62  # of a name in a line at 390 px


class Judged(Protocol):
    """A measured figure with a target."""

    name: str
    value: float
    unit: str
    at_least: float | None
    at_most: float | None
    floor: float | None
    floor_of: str
    holds: bool | None


def against_targets(figures: Sequence[Judged], theme: Theme) -> Figure | None:
    """None when none of them has a target."""
    judged = [figure for figure in figures if ratio(figure) is not None]
    if not judged:
        return None
    ratios = [ratio(figure) or 0.0 for figure in judged]
    end = 1.04 * min(max(1.2, *ratios), _LONGEST)
    return {
        "data": [_bars(judged, ratios, end, theme), _floors(judged, end, theme)],
        "layout": layout(
            theme,
            height=ROW * len(judged) + 40,
            margin=(8, 8, 4, 36),
            xaxis=axis(theme, "value / target", range=[0, end], nticks=6, fixedrange=True),
            yaxis=axis(
                theme, range=[len(judged) - 0.5, -0.95], showticklabels=False, showgrid=False,
                fixedrange=True,
            ),
            annotations=[
                _words(figure, at, theme, cut=ratios[at] > end) for at, figure in enumerate(judged)
            ],
            shapes=[
                {
                    "type": "line", "x0": 1, "x1": 1, "y0": at - 0.2, "y1": at + 0.2,
                    "line": {"color": theme.text, "width": 2},
                }
                for at in range(len(judged))
            ],
        ),
    }  # fmt: skip


def finding(bench: str, figures: Sequence[Judged]) -> str:
    """The chart in a sentence, for those who can't see it."""
    judged = [figure for figure in figures if figure.holds is not None]
    missed = [figure for figure in judged if not figure.holds]
    told = f"{bench}: {len(judged) - len(missed)} of {len(judged)} targets held."
    if missed:
        words = "; ".join(f"{f.name}: {amount(f.value, f.unit)}, {target(f)}" for f in missed)
        told += f" Missed: {words}."
    return told


def ratio(figure: Judged) -> float | None:
    """Value over target; None without one."""
    bound = figure.at_least if figure.at_least is not None else figure.at_most
    return None if not bound or bound < 0 else max(0.0, figure.value / bound)


def target(figure: Judged) -> str:
    """`at least 5 x`, or nothing."""
    if figure.at_least is not None:
        return f"at least {amount(figure.at_least, figure.unit)}"
    return f"at most {amount(figure.at_most, figure.unit)}" if figure.at_most is not None else ""


def verdict(figure: Judged) -> str:
    """By symbol and word."""
    return {True: "✓ held", False: "✗ missed", None: ""}[figure.holds]


def amount(value: float, unit: str) -> str:
    """Three digits, or all before the point."""
    digits = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{digits} {unit}".strip()


def _bars(
    judged: Sequence[Judged], ratios: Sequence[float], end: float, theme: Theme
) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "y": list(range(len(judged))),
        "x": [min(each, end) for each in ratios],
        "width": 0.26,
        "marker": {
            "color": [theme.written if f.holds else theme.alarm for f in judged],
            "line": {"width": 0},
            "pattern": {
                "shape": ["" if f.holds else "/" for f in judged],
                "size": 6,
                "solidity": 0.3,
            },
        },
        "customdata": [[escape(f.name), f"{verdict(f)}: {_told(f)}"] for f in judged],
        "hovertemplate": "%{customdata[0]}<br>%{customdata[1]}<extra></extra>",
    }


def _floors(judged: Sequence[Judged], end: float, theme: Theme) -> dict[str, Any]:
    marks = []
    for at, figure in enumerate(judged):
        bound = figure.at_least if figure.at_least is not None else figure.at_most
        if figure.floor is not None and bound and 0 <= figure.floor / bound <= end:
            words = f"floor {amount(figure.floor, figure.unit)}: {figure.floor_of}"
            marks.append((figure.floor / bound, at, escape(words)))
    x, y, told = zip(*marks, strict=True) if marks else ((), (), ())
    return {
        "type": "scatter",
        "mode": "markers",
        "x": list(x),
        "y": list(y),
        "customdata": list(told),
        "cliponaxis": False,
        "marker": {
            "symbol": "diamond",
            "size": 10,
            "color": theme.paper,
            "line": {"width": 2, "color": theme.text},
        },
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def _words(figure: Judged, at: int, theme: Theme, *, cut: bool) -> dict[str, Any]:
    name = figure.name
    name = name if len(name) <= _LETTERS else name[: _LETTERS - 1] + "…"
    return {
        "text": f"{escape(name)}<br><b>{verdict(figure)}</b> {_told(figure)}{' (bar cut)' * cut}",
        "x": 0, "xref": "paper", "xanchor": "left",
        "y": at - 0.16, "yanchor": "bottom",
        "align": "left",
        "showarrow": False,
        "font": {"size": 11, "color": theme.text if figure.holds else theme.alarm},
    }  # fmt: skip


def _told(figure: Judged) -> str:
    told = f"{amount(figure.value, figure.unit)}, {target(figure)}"
    if figure.floor is not None:
        told += f", floor {amount(figure.floor, figure.unit)}"
    return escape(told)
