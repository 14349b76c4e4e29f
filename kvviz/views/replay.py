"""What a replay found, over its whole length: each figure compares all lanes.

`lanes` is the `lanes` part of a replay's report. A second lane of the same kind has the same
colour and another dash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kvviz.records import REFUSALS
from kvviz.views.theme import SIGNS, Figure, Theme, as_text, axis, faded, layout

HEIGHT = 240
_MARGIN = (52, 10, 28, 38)
_DASHES = ("solid", "dash", "dot", "dashdot")

Lanes = Mapping[str, Mapping[str, Any]]


def free_and_admissible(lanes: Lanes, theme: Theme, step_ms: float) -> Figure:
    """Free (thin) and admissible (thick); the shaded gap is free memory that no request gets."""
    data = []
    for name, report, colour, dash in _styled(lanes, theme):
        series = report["series"]
        x = [step * step_ms / 1000 for step in series["step"]]
        gap = series["free"] != series["admissible"]
        if gap:
            data.append(_line(x, series["free"], colour, f"{name}: free", "dot", 1.2))
        label = f"{name}: admissible" if gap else f"{name}: free = admissible"
        line = _line(x, series["admissible"], colour, label, dash, 2.2)
        if gap:
            line |= {"fill": "tonexty", "fillcolor": faded(colour, 0.16)}
        data.append(line)
    return _figure(theme, data, "trace time (s)", "slots")


def over_trace(lanes: Lanes, theme: Theme, step_ms: float, name: str) -> Figure:
    """`running` or `waiting` sequences."""
    data = []
    for lane, report, colour, dash in _styled(lanes, theme):
        series = report["series"]
        x = [step * step_ms / 1000 for step in series["step"]]
        data.append(_line(x, series[name], colour, lane, dash, 1.6))
    figure = _figure(theme, data, "trace time (s)", name)
    return _told_if_empty(figure, theme, f"Nobody was {name}.")


def refusals(lanes: Lanes, theme: Theme) -> Figure:
    """Requests by the verdict of their first refusal."""
    data = [
        {
            "type": "bar",
            "name": name,
            "x": list(REFUSALS),
            "y": [report["refused"][verdict] for verdict in REFUSALS],
            "marker": {
                "color": colour,
                "pattern": {"shape": "" if dash == "solid" else "/", "fgcolor": theme.paper},
            },
            "hovertemplate": "%{y:,} first refused as %{x}<extra>" + name + "</extra>",
        }
        for name, report, colour, dash in _styled(lanes, theme)
    ]
    figure = _figure(theme, data, "", "requests", barmode="group", hovermode="closest")
    signs = [f"{SIGNS[verdict]} {verdict}" for verdict in REFUSALS]
    figure["layout"]["xaxis"] |= {"tickvals": list(REFUSALS), "ticktext": signs}
    return _told_if_empty(figure, theme, "Nobody was refused.")


def waits(lanes: Lanes, theme: Theme) -> Figure:
    """From arrival to first admission: median and tail."""
    data = []
    for name, report, colour, dash in _styled(lanes, theme):
        waited = report["waited"]
        data.append(
            {
                "type": "bar",
                "name": name,
                "x": ["p50", "p95", "p99"],
                "y": [waited[f"{p}_s"] for p in ("p50", "p95", "p99")],
                "marker": {
                    "color": colour,
                    "pattern": {"shape": "" if dash == "solid" else "/", "fgcolor": theme.paper},
                },
                "hovertemplate": "%{y:,.2f} s waited at %{x}<extra>" + name + "</extra>",
            }
        )
    figure = _figure(theme, data, "", "s waited", barmode="group", hovermode="closest")
    return _told_if_empty(figure, theme, "Nobody waited.")


def _styled(lanes: Lanes, theme: Theme) -> Iterator[tuple[str, Mapping[str, Any], str, str]]:
    seen: dict[str, int] = {}
    for name, report in lanes.items():
        kind = report["lane"]
        nth = seen.get(kind, 0)
        seen[kind] = nth + 1
        yield as_text(name), report, theme.lanes[kind], _DASHES[nth % len(_DASHES)]


def _line(
    x: list[float], y: list[int], colour: str, name: str, dash: str, width: float
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "line": {"color": colour, "width": width, "dash": dash, "shape": "hv"},
        "hovertemplate": "%{y:,}<extra>" + name + "</extra>",
    }


def _told_if_empty(figure: Figure, theme: Theme, words: str) -> Figure:
    """An axis of bars or lines that are all 0 looks like a chart that failed."""
    if not any(value for trace in figure["data"] for value in trace["y"]):
        figure["layout"]["annotations"] = [
            {
                "text": words,
                "x": 0.5,
                "y": 0.5,
                "xref": "paper",
                "yref": "paper",
                "showarrow": False,
                "font": {"size": 13, "color": theme.quiet},
            }
        ]
    return figure


def _figure(theme: Theme, data: list[dict], x: str, y: str, **more: Any) -> Figure:
    top = max((value for trace in data for value in trace["y"] if value is not None), default=0)
    # Else Plotly would count requests in thousandths
    ticks = {"nticks": 6} if top > 4 else {"dtick": 1, "range": [0, 1.1 * max(top, 1)]}
    return {
        "data": data,
        "layout": layout(
            theme,
            height=HEIGHT,
            margin=_MARGIN,
            xaxis=axis(theme, x, tickformat="" if not x else "~s", nticks=8),
            yaxis=axis(theme, y, tickformat="~s", rangemode="tozero", **ticks),
            showlegend=True,
            legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "font": {"size": 11}},
            **{"hovermode": "x", **more},
        ),
    }
