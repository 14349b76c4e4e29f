"""The PagedAttention paper's bars beside ours: published outlined and hatched, measured solid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvviz.views.theme import Figure, Theme, axis, faded, layout, legible

PUBLISHED, MEASURED = "paper", "here"
LEGEND = (  # kind, the theme's name of the colour, label
    ("fill", "written", "token states"),
    ("fill", "reserved", "reservation"),
    ("fill", "internal", "internal"),
    ("fill", "external", "external and others"),
    ("fill", "usable", "not divided"),
)
_ROW = 30  # px a bar


def bars(report: Mapping[str, Any], theme: Theme) -> Figure:
    """Figure 2: where the pool's slots are, in percent, two stacked bars a system.

    A published part that was not told (vLLM's waste is one number) is drawn as one grey rest.
    """
    systems = report["systems"]
    colours = {
        "token states": theme.written,
        "reservation": theme.reserved,
        "internal": theme.internal,
        "external and others": theme.external,
    }
    data = [
        trace
        for part, colour in colours.items()
        for trace in (
            _published(systems, part, colour, theme),
            _measured(systems, part, colour, theme),
        )
    ]
    return {
        "data": [*data, _rest(systems, theme)],
        "layout": _layout(systems, theme, "% of the pool", range=[0, 100.5], barmode="stack"),
    }


def batched(report: Mapping[str, Any], theme: Theme) -> Figure:
    """Figure 13a: requests in a batch, on average."""
    systems = report["systems"]
    data = [
        _published(systems, "batched", theme.written, theme),
        _measured(systems, "batched", theme.written, theme),
    ]
    for trace in data:
        trace["hovertemplate"] = trace["hovertemplate"].replace(" %:", " requests:")
        trace["text"] = [_number(value) for value in trace["x"]]
        trace["textposition"] = "auto"
    return {
        "data": data,
        "layout": _layout(systems, theme, "requests batched, mean", rangemode="tozero"),
    }


def _published(systems: Mapping[str, Any], part: str, colour: str, theme: Theme) -> dict[str, Any]:
    values = [system["published"][part] for system in systems.values()]
    return {
        **_trace(systems, PUBLISHED, values, part),
        "showlegend": False,
        "marker": {
            "color": faded(colour, 0.08),
            "line": {"width": 1.5, "color": colour},
            "pattern": {
                "shape": "/",
                "size": 7,
                "solidity": 0.12,
                "fgcolor": faded(colour, 0.6),
            },
        },
        "hovertemplate": "%{x} %: " + part + ", published<extra>%{y}</extra>",
        "textfont": {"color": theme.text, "size": 11},
    }


def _measured(systems: Mapping[str, Any], part: str, colour: str, theme: Theme) -> dict[str, Any]:
    found = [(system["measured"] or {}).get(part) for system in systems.values()]
    values = [spread and round(spread["mean"], 2) for spread in found]
    return {
        **_trace(systems, MEASURED, values, part),
        "marker": {"color": colour, "line": {"width": 0}},
        "customdata": [
            [spread["low"], spread["high"]] if spread else [None, None] for spread in found
        ],
        "hovertemplate": "%{x} %: " + part + ", measured (seeds from %{customdata[0]:.1f} to "
        "%{customdata[1]:.1f})<extra>%{y}</extra>",
        "textfont": {"color": theme.text, "size": 11},
        "insidetextfont": {"color": legible(colour), "size": 11},
    }


def _rest(systems: Mapping[str, Any], theme: Theme) -> dict[str, Any]:
    """What the paper did not divide further."""
    values = [
        round(100 - system["published"]["token states"], 2)
        if system["published"]["reservation"] is None
        else None
        for system in systems.values()
    ]
    return {
        **_trace(systems, PUBLISHED, values, "not divided"),
        "marker": {"color": theme.usable, "line": {"width": 1.5, "color": theme.quiet}},
        "hovertemplate": "%{x} %: waste, published undivided<extra>%{y}</extra>",
        "textfont": {"color": theme.text, "size": 11},
    }


def _trace(
    systems: Mapping[str, Any], kind: str, values: list[float | None], name: str
) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [list(systems), [kind] * len(systems)],
        "x": values,
        "text": [_number(value) if value and value >= 5 else "" for value in values],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "constraintext": "none",
    }


def _layout(systems: Mapping[str, Any], theme: Theme, title: str, **more: Any) -> dict[str, Any]:
    ranges = {key: more.pop(key) for key in ("range", "rangemode") if key in more}
    return layout(
        theme,
        height=2 * len(systems) * _ROW + 48,
        margin=(122, 12, 8, 40),
        **{
            "bargap": 0.18,
            "xaxis": axis(theme, title, nticks=6, **ranges),
            "yaxis": axis(
                theme, autorange="reversed", showgrid=False, dividercolor=theme.grid,
                automargin=True,
            ),
            **more,
        },
    )  # fmt: skip


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
