"""The lesson's maps: the pool before and after, with what moved, or where blocks lie, as lines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kvviz.records import HOLE, Columns, Move
from kvviz.views.strip import StripRow, strip
from kvviz.views.theme import Figure, Theme, faded, number

_ROW = 54
_HALF = 0.41  # height of a row's bars, as a share of the row
_SMALLEST = 0.045  # of the pool: what is smaller carries no label


def lesson_map(
    rows: Sequence[StripRow],
    theme: Theme,
    *,
    capacity: int,
    paged: bool,
    moves: Sequence[Move] = (),
) -> Figure:
    """One row a moment. moves: copies from the first row to the last, each a line between."""
    lines = [
        (m.source + m.size / 2, m.target + m.size / 2, f"{number(m.size)} slots moved")
        for m in moves
    ]
    return _joined(rows, theme, capacity, paged, lines, width=2.5, colour=theme.alarm)


def block_lines(
    name: str, owner: int, slots: np.ndarray, pool: StripRow, theme: Theme, *, capacity: int,
    block: int,
) -> Figure:  # fmt: skip
    """A request's logical blocks above, the pool below, and a line from each to its place."""
    starts = slots[::block]
    one = np.array([len(slots)], np.int64)
    logical = Columns(one * 0, one, one, one * 0 + owner, one * 0 + 1)
    row = StripRow(f"{name}, in order", logical, pool.names)
    lines = [
        (i * block + block / 2, int(at) + block / 2, f"block {i} of {name}: slots from {at:,}")
        for i, at in enumerate(starts)
    ]
    return _joined((row, pool), theme, capacity, True, lines, width=1, colour=theme.quiet)


def _joined(
    rows: Sequence[StripRow],
    theme: Theme,
    capacity: int,
    paged: bool,
    lines: Sequence[tuple[float, float, str]],
    *,
    width: float,
    colour: str,
) -> Figure:
    shown = list(rows)
    if lines:
        none = np.zeros(0, np.int64)
        shown[-1:] = [StripRow("", Columns(none, none, none, none, none), {}), shown[-1]]
    figure = strip(shown, theme, capacity=capacity, paged=paged)
    low = len(shown) - 1
    figure["data"][0]["width"] = 2 * _HALF  # else an empty row makes its neighbours higher
    figure["layout"]["height"] = _ROW * len(shown) + 44
    figure["layout"]["annotations"] = [
        note for at, row in enumerate(shown) for note in _names(row, at, theme, capacity)
    ]
    if lines:
        figure["data"].append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": [x for source, target, _ in lines for x in (source, target, None)],
                "y": [y for _ in lines for y in (low - 2 + _HALF, low - _HALF, None)],
                "text": [text for _, _, text in lines for _ in range(3)],
                "hovertemplate": "%{text}<extra></extra>",
                "line": {"color": colour, "width": width},
            }
        )
    return figure


def _names(row: StripRow, at: int, theme: Theme, capacity: int) -> list[dict]:
    """Whose it is, on every run that is large enough; on a hole its size."""
    c = row.columns
    if not len(c.owner):
        return []
    first = np.flatnonzero(np.concatenate([[True], c.owner[1:] != c.owner[:-1]]))
    sizes = np.add.reduceat(c.size, first)
    return [
        {
            "x": int(c.start[i]) + int(size) / 2,
            "y": at,
            "text": number(size) if c.owner[i] == HOLE else f"<b>{row.names[int(c.owner[i])]}</b>",
            "showarrow": False,
            "font": {
                "size": 11 if c.owner[i] == HOLE else 13,
                "color": theme.quiet if c.owner[i] == HOLE else theme.text,
            },
            "bgcolor": "rgba(0,0,0,0)" if c.owner[i] == HOLE else faded(theme.paper, 0.8),
            "borderpad": 2,
        }
        for i, size in zip(first.tolist(), sizes.tolist(), strict=True)
        if size >= _SMALLEST * capacity and c.owner[i] >= HOLE
    ]
