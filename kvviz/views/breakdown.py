"""Where the bytes are: both lanes, in the textbook's and the PagedAttention paper's sense."""

from __future__ import annotations

from collections.abc import Mapping

from kvviz.metrics import Breakdown, paper_breakdown, textbook_breakdown
from kvviz.records import Snapshot
from kvviz.views.theme import LIGHT, Figure, Theme, axis, layout

HEIGHT = 214
MiB = 1 << 20


def breakdown(snapshots: Mapping[str, Snapshot], theme: Theme, *, ask: int) -> Figure:
    """One bar a lane and view, in percent of the pool; the rest is free and usable."""
    labels: list[str] = []
    rows: list[tuple[Breakdown, int]] = []
    for name, snapshot in snapshots.items():
        for view, parts in (
            ("paper", paper_breakdown(snapshot, ask)),
            ("textbook", textbook_breakdown(snapshot)),
        ):
            labels.append(f"{name}<br>{view}")
            rows.append((parts, snapshot.slot_bytes))
    data = [
        _part(labels, rows, field, title, colour, pattern)
        for field, title, colour, pattern in _parts(theme)
    ]
    return {
        "data": data,
        "layout": layout(
            theme,
            height=HEIGHT,
            margin=(76, 8, 6, 34),
            barmode="stack",
            bargap=0.3,
            xaxis=axis(theme, "% of the pool", range=[0, 100], nticks=6),
            yaxis=axis(theme, autorange="reversed", showgrid=False),
        ),
    }


def legend() -> list[tuple[str, str, str]]:
    """(kind, colour, label) of the parts of a bar."""
    return [
        ("hatch" if pattern else "fill", field, title) for field, title, _, pattern in _parts(LIGHT)
    ]


def _parts(theme: Theme) -> list[tuple[str, str, str, str]]:
    return [
        ("written", "token states", theme.written, ""),
        ("reserved", "reserved, used later", theme.reserved, ""),
        ("internal", "internal waste", theme.internal, "/"),
        ("external", "external waste", theme.external, "x"),
        ("usable", "free and usable", theme.usable, ""),
    ]


def _part(
    labels: list[str],
    rows: list[tuple[Breakdown, int]],
    field: str,
    title: str,
    colour: str,
    pattern: str,
) -> dict:
    values = [_value(parts, field) for parts, _ in rows]
    return {
        "type": "bar",
        "orientation": "h",
        "name": title,
        "y": labels,
        "x": [round(100 * v / parts.total, 2) for v, (parts, _) in zip(values, rows, strict=True)],
        "customdata": [
            [f"{v:,}", f"{v * slot / MiB:,.2f}"] for v, (_, slot) in zip(values, rows, strict=True)
        ],
        "marker": {
            "color": colour,
            "line": {"width": 0},
            "pattern": {"shape": pattern, "size": 5, "solidity": 0.25},
        },
        "hovertemplate": "%{x:.1f} %: %{customdata[0]} slots, %{customdata[1]} MiB"
        "<extra>" + title + "</extra>",
    }


def _value(parts: Breakdown, field: str) -> int:
    if field == "usable":
        return parts.total - parts.written - parts.reserved - parts.internal - parts.external
    return getattr(parts, field)
