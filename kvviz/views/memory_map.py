"""The memory map: the pool's slots in address order, wrapped into rows, one cell a slot.

The picture is an indexed PNG of the cells, so that a million slots cost no more to draw than a
thousand; of a larger pool every fourth is drawn, every sixteenth, and so on, and the key says
so. Written slots carry their request's colour; reserved but unwritten ones are hatched in
it; holes are neutral; requests of one hue differ by pattern; a line marks where a region or
block starts. The head of the queue lies as
a dashed ghost over the largest hole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from kvviz.metrics import holes
from kvviz.records import ADMITTED, HOLE, RESERVED, Columns, Snapshot, Verdict
from kvviz.views import pixels
from kvviz.views.pixels import FIRST, HUES, REST, SHARED, paint, png
from kvviz.views.theme import (
    PATTERNS,
    Figure,
    Theme,
    axis,
    blend,
    faded,
    ink,
    layout,
    number,
    rgb,
)

COLOUR_BY = ("request", "state", "age")
HEIGHT = 310
_MOST = 1 << 17  # slots drawn one by one
_SAMPLED = 1 << 16  # cells of a larger pool: scattered in every colour, they are 50 KB
_SCATTERED = 0.75  # of the cells like their left neighbour; patterns show from here on
_PIXELS = 1024  # about twice the width on the page, so that lines stay whole


@dataclass(frozen=True)
class Grid:
    """Cells: `columns` a row (a power of two), `rows`, `scale` pixels a cell."""

    columns: int
    rows: int
    scale: int

    @property
    def every(self) -> int:
        """One slot is drawn of each square of so many by so many: 1 where all are."""
        slots, every = self.columns * self.rows, 1
        if slots > _MOST:
            while slots > _SAMPLED * every * every:
                every *= 2
        return every

    @classmethod
    def of(cls, capacity: int) -> Grid:
        """About 2.3 times as wide as high, as the map's frame is."""
        columns = 1 << max(3, round(float(np.log2(capacity * 2.3)) / 2))
        return cls(columns, -(-capacity // columns), max(1, _PIXELS // columns))


def memory_map(
    snapshot: Snapshot,
    theme: Theme,
    hues: dict[int, int],
    *,
    name: str,
    colour_by: str = "request",
    ghost: Verdict | None = None,
) -> Figure:
    """The figure of one lane's pool."""
    grid = Grid.of(snapshot.capacity)
    source = picture(snapshot, theme, hues, grid, colour_by, ghost)
    shape = [0, grid.columns, grid.rows, 0]
    axes: dict[str, Any] = {"showgrid": False, "showline": False, "ticks": ""}
    ticks = np.linspace(0, grid.rows, 5).astype(int)[:-1]
    return {
        # Axes need a trace; the picture is a layout image, because an image trace would copy it
        # into a new canvas with every redraw.
        "data": [{"type": "scatter", "x": [None], "y": [None], "hoverinfo": "skip", "name": name}],
        "layout": layout(
            theme,
            height=HEIGHT,
            margin=(48, 4, 2, 4),
            dragmode="zoom",
            xaxis=axis(theme, range=shape[:2], showticklabels=False, constrain="domain", **axes),
            yaxis=axis(
                theme,
                range=shape[2:],
                tickvals=ticks.tolist(),
                scaleanchor=False,
                ticktext=[number(t * grid.columns) for t in ticks],
                **axes,
            ),
            images=[
                {
                    "source": source,
                    "xref": "x",
                    "yref": "y",
                    "x": 0,
                    "y": 0,
                    "sizex": grid.columns,
                    "sizey": grid.rows,
                    "sizing": "stretch",
                    "xanchor": "left",
                    "yanchor": "top",
                    "layer": "below",
                }
            ],
            shapes=_ghost(snapshot, grid, theme, ghost),
        ),
    }


def picture(
    snapshot: Snapshot,
    theme: Theme,
    hues: dict[int, int],
    grid: Grid,
    colour_by: str,
    ghost: Verdict | None,
) -> str:
    """The cells as an indexed PNG, as a data URL."""
    if grid.every > 1:
        drawn = sampled(snapshot, hues, grid, colour_by, ghost)
        scale = max(1, _PIXELS // drawn.shape[1])
        if (drawn[:, 1:] == drawn[:, :-1]).mean() < _SCATTERED:
            scale = 1  # patterns could not be seen, and would be half of the frame
        return png(paint(drawn, scale), palette(theme, colour_by))
    codes, starts = cells(snapshot, hues, colour_by, ghost)
    drawn = np.full(grid.columns * grid.rows, REST, np.uint8)
    drawn[: len(codes)] = codes
    shape = grid.rows, grid.columns
    marks: np.ndarray | None = None
    if grid.scale > 1 and _lines_are_clear(snapshot, grid):
        begins = np.zeros(len(drawn), bool)
        begins[starts] = True
        marks = begins.reshape(shape)
    painted = paint(drawn.reshape(shape), grid.scale, marks)
    return png(painted, palette(theme, colour_by))


def cells(
    snapshot: Snapshot, hues: dict[int, int], colour_by: str, ghost: Verdict | None
) -> tuple[np.ndarray, np.ndarray]:
    """(palette index of each slot uint8 [capacity], first slots of the rows)."""
    c = snapshot.columns
    written, rest = _codes(snapshot, hues, colour_by, ghost)
    lengths = np.stack([c.used, c.size - c.used], axis=1).reshape(-1)
    return np.stack([written, rest], axis=1).reshape(-1).repeat(lengths), c.start


def sampled(
    snapshot: Snapshot,
    hues: dict[int, int],
    grid: Grid,
    colour_by: str,
    ghost: Verdict | None,
) -> np.ndarray:
    """Palette indices uint8 [rows, columns] of one slot in each square of `grid.every` squared:
    more would be smaller than a point of the screen, and megabytes."""
    middle, every = grid.every // 2, grid.every
    first = np.arange(0, grid.rows, every)[:, None] + middle
    slot = first * grid.columns + np.arange(0, grid.columns, every) + middle
    inside = slot < snapshot.capacity
    slots = np.minimum(slot, snapshot.capacity - 1).reshape(-1)
    c = snapshot.columns
    at = _row_at(c, slots, snapshot.grain)
    cached = None if c.cached is None else c.cached[at]
    rows = Columns(c.start[at], c.size[at], c.used[at], c.owner[at], c.refs[at], cached)
    written, rest = _codes(replace(snapshot, columns=rows), hues, colour_by, ghost)
    codes = np.where(slots - rows.start < rows.used, written, rest)
    return np.where(inside, codes.reshape(slot.shape), REST).astype(np.uint8)


def _row_at(c: Columns, slots: np.ndarray, grain: int) -> np.ndarray:
    """The row of each of these slots. Where all rows are units of `grain`, as the blocks of a pool
    are, no search is needed."""
    at = np.minimum(slots // grain, len(c.start) - 1)
    start = c.start[at]
    if ((start <= slots) & (slots < start + c.size[at])).all():
        return at
    return np.searchsorted(c.start, slots, side="right") - 1


def _codes(
    snapshot: Snapshot, hues: dict[int, int], colour_by: str, ghost: Verdict | None
) -> tuple[np.ndarray, np.ndarray]:
    """Palette indices of the written slots of each row, and of its others: uint8 [rows] each."""
    c = snapshot.columns
    need = ghost.need if ghost and ghost.kind != ADMITTED else 0
    hue = _row_hues(snapshot, hues, colour_by)
    free = c.owner < 0
    empty = np.where(_too_small(snapshot, need), pixels.STUCK, pixels.HOLE)
    empty[c.owner == RESERVED] = REST
    if c.cached is not None:
        empty[c.cached > 0] = pixels.CACHED
    full = FIRST + 2 * hue + SHARED * (c.refs > 1)
    written = np.where(free, empty, full).astype(np.uint8)
    return written, np.where(free, empty, FIRST + 2 * hue + 1).astype(np.uint8)


def palette(theme: Theme, colour_by: str) -> list[tuple[int, int, int]]:
    """Colours of the palette indices: line, hole, stuck hole, behind the pool, cached, none,
    then the hues once for each pattern, then their inks."""
    grounds = (theme.paper, theme.hole, theme.stuck, theme.paper, theme.cached, theme.paper)
    return _palette(grounds, tuple(_ramp(theme, colour_by)), theme.hole)


@lru_cache(maxsize=16)
def _palette(
    grounds: tuple[str, ...], ramp: tuple[str, ...], hole: str
) -> list[tuple[int, int, int]]:
    colours = [*grounds]
    for written in (*ramp * len(PATTERNS), *map(ink, ramp)):
        colours += [written, blend(written, hole, 0.55)]
    return [rgb(colour) for colour in colours]


def _ramp(theme: Theme, colour_by: str) -> list[str]:
    if colour_by == "state":
        return [theme.written] * HUES
    if colour_by == "age":
        old, young = theme.written, theme.lanes["paged"]
        return [blend(young, old, i / (HUES - 1)) for i in range(HUES)]
    return list(theme.hues)


def _row_hues(snapshot: Snapshot, hues: dict[int, int], colour_by: str) -> np.ndarray:
    """Look of each row, hue + 12 * pattern; for age: 11 is the youngest."""
    owner = snapshot.columns.owner
    if not len(snapshot.seq_id) or colour_by == "state":
        return np.zeros(len(owner), np.int64)
    order = np.argsort(snapshot.seq_id)
    ids = snapshot.seq_id[order]
    if colour_by == "age":
        rank = np.argsort(np.argsort(snapshot.seq_since, kind="stable"), kind="stable")
        value = (rank * (HUES - 1) // max(len(rank) - 1, 1))[order]
    else:
        value = np.array([hues.get(i, 0) for i in ids.tolist()], np.int64)
    first, last = int(ids[0]), int(ids[-1])
    if last - first > len(owner):  # too far apart for a table of them all
        at = np.clip(np.searchsorted(ids, owner), 0, len(ids) - 1)
        return np.where(owner < 0, 0, value[at])
    table = np.zeros(last - first + 1, np.int64)
    table[ids - first] = value
    return np.where(owner < 0, 0, table.take(owner - first, mode="clip"))


def _too_small(snapshot: Snapshot, need: int) -> np.ndarray:
    """Rows that are holes in which the waiting head does not fit (contiguous only)."""
    c = snapshot.columns
    if not need or snapshot.paged:
        return np.zeros(len(c.owner), bool)
    return (c.owner == HOLE) & (c.size < need)


def _lines_are_clear(snapshot: Snapshot, grid: Grid) -> bool:
    """Lines would hide the cells when blocks are only a few pixels wide."""
    return not snapshot.paged or snapshot.grain * grid.scale >= 12


def ghost_place(snapshot: Snapshot, verdict: Verdict | None) -> tuple[int, int] | None:
    """[first, end) slots over which the head of the queue is drawn: from the largest hole on, and
    on into what is taken (contiguous). None when any free unit will do."""
    if verdict is None or verdict.kind == ADMITTED or snapshot.paged:
        return None
    c = snapshot.columns
    free = np.flatnonzero(c.owner == HOLE)
    if not len(free):
        return None
    row = free[np.argmax(c.size[free])]
    start = int(c.start[row])
    stop = min(start + verdict.need, snapshot.capacity)
    return max(0, min(start, stop - verdict.need)), stop


def _ghost(snapshot: Snapshot, grid: Grid, theme: Theme, verdict: Verdict | None) -> list[dict]:
    """The head of the queue, dashed."""
    place = ghost_place(snapshot, verdict)
    if place is None:
        return []
    start, stop = place
    path = {"type": "path", "path": _outline(start, stop, grid.columns), "layer": "above"}
    return [
        {**path, "line": {"color": theme.paper, "width": 5}, "fillcolor": faded(theme.paper, 0.35)},
        {
            **path,
            "line": {"color": theme.alarm, "width": 2.5, "dash": "6px,3px"},
            "fillcolor": "rgba(0,0,0,0)",
        },
    ]


def _outline(start: int, stop: int, columns: int) -> str:
    """SVG path around the cells [start, stop) of a wrapped strip."""
    top, left = divmod(start, columns)
    bottom, right = divmod(stop, columns)
    if right == 0:
        bottom, right = bottom - 1, columns
    if top == bottom:
        return f"M{left},{top}H{right}V{top + 1}H{left}Z"
    if bottom == top + 1 and right <= left:  # two pieces that do not touch
        return f"M{left},{top}H{columns}V{top + 1}H{left}ZM0,{bottom}H{right}V{bottom + 1}H0Z"
    return f"M{left},{top}H{columns}V{bottom}H{right}V{bottom + 1}H0V{top + 1}H{left}Z"


def legend(snapshot: Snapshot) -> list[tuple[str, str, str]]:
    """What this lane's map needs explained: (kind, colour, label)."""
    every = Grid.of(snapshot.capacity).every
    some = [] if every == 1 else [("note", "free", f"one slot of {every * every} is drawn")]
    if not snapshot.paged:
        return [
            ("hatch", "reserved", "reserved, unwritten"),
            ("fill", "hole", "hole"),
            ("fill", "stuck", "hole too small for the head"),
            ("ghost", "alarm", "head of the queue"),
            *some,
        ]
    rows = [("hatch", "reserved", "block tail"), ("fill", "hole", "free block")]
    if snapshot.columns.cached is not None and snapshot.columns.cached.any():
        rows.append(("fill", "cached", "free, keeps a prefix"))
    if snapshot.columns.again:
        rows.append(("dots", "written", "shared by several"))
    return rows + some


def map_alt(snapshot: Snapshot, name: str) -> str:
    """What the map shows, in words."""
    sizes = holes(snapshot)
    return (
        f"Memory map, {name}: {number(snapshot.capacity)} slots, "
        f"{number(snapshot.free)} free in {len(sizes)} holes, largest admissible request "
        f"{number(snapshot.admissible)}, {snapshot.counters.running} requests running."
    )
