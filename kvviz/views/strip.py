"""A pool over time: one row for each operation or step, the pool's slots from left to right.

Written slots carry their owner's colour, reserved ones a pale shade of it, holes are neutral. A
request that was refused lies as a dashed ghost over the largest hole of its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kvviz.records import HOLE, RESERVED, SIBLINGS, Columns
from kvviz.views.theme import (
    PATTERNS,
    SIGNS,
    Figure,
    Theme,
    as_text,
    axis,
    blend,
    faded,
    ink,
    layout,
    number,
)

MOST_PIECES = 400  # in a row; one with more is drawn as parts of the pool, each with its share
PARTS = 256
_ROW = 24
_LABEL = 26


@dataclass(frozen=True)
class StripRow:
    """names: owners in words. ask: slots refused here, 0 for none; note: the verdict on it."""

    label: str
    columns: Columns
    names: Mapping[int, str]
    ask: int = 0
    note: str = ""


@dataclass(frozen=True)
class _Piece:
    start: int
    size: int
    colour: str
    hover: str
    pattern: str = ""


def strip(
    rows: Sequence[StripRow], theme: Theme, *, capacity: int, paged: bool, chosen: int = -1
) -> Figure:
    """chosen: the row to point at."""
    pieces = [(at, piece) for at, row in enumerate(rows) for piece in _pieces(row, theme)]
    labels = [_short(row.label) for row in rows]
    return {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "base": [p.start for _, p in pieces],
                "x": [p.size for _, p in pieces],
                "y": [at for at, _ in pieces],
                "marker": {
                    "color": [p.colour for _, p in pieces],
                    "line": {"width": 1 if len(pieces) < 1000 else 0, "color": theme.paper},
                    "pattern": _patterns(pieces),
                },
                "hovertext": [p.hover for _, p in pieces],
                "hoverinfo": "text",
                "textposition": "none",
            }
        ],
        "layout": layout(
            theme,
            height=_ROW * len(rows) + 44,
            margin=(8, 8, 4, 36),
            bargap=0.18,
            barmode="overlay",
            xaxis=axis(theme, "slots", range=[0, capacity], tickformat=",", showgrid=False),
            yaxis=axis(
                theme,
                range=[len(rows) - 0.5, -0.5],
                tickvals=list(range(len(rows))),
                ticktext=[
                    f"<b>{text}</b>" if i == chosen else text for i, text in enumerate(labels)
                ],
                showgrid=False,
                automargin=True,
            ),
            shapes=[
                shape
                for at, row in enumerate(rows)
                for shape in _ghost(row, at, theme, capacity, paged)
            ],
            annotations=[_note(row, at, theme) for at, row in enumerate(rows) if row.ask],
            dragmode=False,
        ),
    }


def is_coarse(row: StripRow) -> bool:
    """Is it drawn as parts of the pool, each in the shade of its share in use?"""
    return len(_segments(row.columns)[0]) > MOST_PIECES


def over_steps(
    step: np.ndarray, used: np.ndarray, waiting: np.ndarray, theme: Theme, *, pool: int, chosen: int
) -> Figure:
    """Slots used after each step, and requests waiting, on an axis of their own."""
    most = max(1, int(waiting.max(initial=0)))
    line = {"type": "scatter", "mode": "lines", "x": step.tolist()}
    return {
        "data": [
            {
                **line,
                "y": used.tolist(),
                "line": {"color": theme.written, "shape": "hv", "width": 1.6},
                "hovertemplate": "step %{x}: %{y:,} slots used<extra></extra>",
            },
            {
                **line,
                "y": waiting.tolist(),
                "yaxis": "y2",
                "line": {"color": theme.alarm, "shape": "hv", "width": 1.2, "dash": "dot"},
                "hovertemplate": "step %{x}: %{y:,} waiting<extra></extra>",
            },
        ],
        "layout": layout(
            theme,
            height=150,
            margin=(56, 44, 8, 34),
            xaxis=axis(theme, "step", showgrid=False, tickformat=","),
            yaxis=axis(theme, "slots used", range=[0, pool * 1.04], tickformat=",", nticks=4),
            yaxis2=axis(
                theme,
                "waiting (dotted)",
                overlaying="y",
                side="right",
                range=[0, most * 1.04],
                tickvals=sorted({0, most // 2, most}),
                showgrid=False,
            ),
            shapes=[
                {
                    "type": "line",
                    "x0": chosen,
                    "x1": chosen,
                    "yref": "paper",
                    "y0": 0,
                    "y1": 1,
                    "line": {"color": theme.quiet, "width": 1, "dash": "dot"},
                }
            ],
            dragmode=False,
        ),
    }


def _segments(c: Columns) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(start, size, owner, written?) with neighbours alike put together."""
    start = np.stack([c.start, c.start + c.used], axis=1).reshape(-1)
    size = np.stack([c.used, c.size - c.used], axis=1).reshape(-1)
    owner = c.owner.repeat(2)
    written = np.tile([True, False], len(c.owner))
    there = size > 0
    start, size, owner, written = start[there], size[there], owner[there], written[there]
    if not len(start):
        return start, size, owner, written
    fresh = np.ones(len(start), bool)
    fresh[1:] = (owner[1:] != owner[:-1]) | (written[1:] != written[:-1])
    first = np.flatnonzero(fresh)
    return start[first], np.add.reduceat(size, first), owner[first], written[first]


def _pieces(row: StripRow, theme: Theme) -> list[_Piece]:
    segments = _segments(row.columns)
    if len(segments[0]) > MOST_PIECES:
        return _parts(row, theme)
    return [
        _Piece(
            s,
            n,
            _colour(o, w, theme),
            f"{_name(o, w, row)}: {number(n)} slots at {number(s)}",
            PATTERNS[o // SIBLINGS // len(theme.hues) % len(PATTERNS)] if o >= 0 else "",
        )
        for s, n, o, w in zip(*(part.tolist() for part in segments), strict=True)
    ]


def _patterns(pieces: Sequence[tuple[int, _Piece]]) -> dict:
    """Told apart by pattern, as far as the browser draws so many."""
    if len(pieces) >= 1000 or not any(p.pattern for _, p in pieces):
        return {"shape": ""}
    return {
        "shape": [p.pattern for _, p in pieces],
        "fgcolor": [ink(p.colour) for _, p in pieces],
        "bgcolor": [p.colour for _, p in pieces],
        "size": 5,
        "solidity": 0.35,
    }


def _parts(row: StripRow, theme: Theme) -> list[_Piece]:
    """The pool in equal parts, each in the shade of its share in use."""
    c = row.columns
    capacity = int(c.start[-1] + c.size[-1])
    edges = np.linspace(0, capacity, PARTS + 1).astype(np.int64)
    busy = np.where(c.owner == HOLE, 0, c.size)
    before = np.concatenate([[0], np.cumsum(busy)])
    at = np.clip(np.searchsorted(c.start, edges, side="right") - 1, 0, len(c.start) - 1)
    inside = np.minimum(edges - c.start[at], c.size[at])
    total = before[at] + np.where(c.owner[at] == HOLE, 0, inside)
    shares = np.diff(total) / np.maximum(np.diff(edges), 1)
    return [
        _Piece(
            int(a),
            int(b - a),
            blend(theme.written, theme.hole, float(share)),
            f"slots {number(a)} to {number(b - 1)}: {share:.0%} in use",
        )
        for a, b, share in zip(edges[:-1], edges[1:], shares, strict=True)
        if b > a
    ]


def _colour(owner: int, written: bool, theme: Theme) -> str:
    if owner == HOLE:
        return theme.hole
    if owner == RESERVED:
        return theme.grid
    hue = theme.hues[(owner % SIBLINGS + 5 * (owner // SIBLINGS)) % len(theme.hues)]
    return hue if written else blend(hue, theme.hole, 0.4)


def _name(owner: int, written: bool, row: StripRow) -> str:
    if owner == HOLE:
        return "free"
    if owner == RESERVED:
        return "not for requests"
    return as_text(row.names.get(owner, str(owner))) + ("" if written else ", reserved")


def _ghost(row: StripRow, at: int, theme: Theme, capacity: int, paged: bool) -> list[dict]:
    """Over the largest hole, running on into what is taken. A paged pool has no one place."""
    c = row.columns
    free = np.flatnonzero(c.owner == HOLE)
    if not row.ask or paged or not len(free):
        return []
    best = free[np.argmax(c.size[free])]
    stop = min(int(c.start[best]) + row.ask, capacity)
    return [
        {
            "type": "rect",
            "x0": max(0, stop - row.ask),
            "x1": stop,
            "y0": at - 0.44,
            "y1": at + 0.44,
            "line": {"color": theme.alarm, "width": 2, "dash": "6px,3px"},
            "fillcolor": faded(theme.paper, 0.25),
            "layer": "above",
        }
    ]


def _note(row: StripRow, at: int, theme: Theme) -> dict:
    return {
        "x": 1,
        "xref": "paper",
        "xanchor": "right",
        "y": at,
        "text": f"{SIGNS.get(row.note, '')} {row.note}: {number(row.ask)}".strip(),
        "showarrow": False,
        "font": {"size": 11, "color": theme.alarm},
        "bgcolor": faded(theme.paper, 0.85),
    }


def _short(label: str) -> str:
    return as_text(label if len(label) <= _LABEL else f"{label[: _LABEL - 1]}…")
