"""The memory map: the pool's slots in address order, wrapped into rows, one cell a slot.

The picture is an indexed PNG of the cells, so that a million slots cost no more to draw than a
thousand. Written slots carry their request's colour; reserved but unwritten ones are hatched in
it; holes are neutral; a line marks where a region or block starts. The head of the queue lies as
a dashed ghost over the largest hole.
"""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PIL import Image

from kvviz.metrics import holes
from kvviz.records import ADMITTED, HOLE, RESERVED, Snapshot, Verdict
from kvviz.views.theme import Figure, Theme, axis, blend, faded, layout, number, rgb

COLOUR_BY = ("request", "state", "age")
HEIGHT = 320
_PIXELS = 1024  # about twice the width on the page, so that lines stay whole
_HUES = 12
_LINE, _HOLE, _STUCK, _REST, _CACHED = range(5)
_FIRST = 6  # palette: _FIRST + 2 * hue written, + 1 reserved
_SHARED = 64  # added to what several sequences hold


@dataclass(frozen=True)
class Grid:
    """Cells: `columns` a row (a power of two), `rows`, `scale` pixels a cell."""

    columns: int
    rows: int
    scale: int

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
    axes = {"showgrid": False, "showline": False, "ticks": ""}
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
    codes, starts = cells(snapshot, hues, colour_by, ghost)
    total = grid.columns * grid.rows
    padded = np.full(total, _REST, np.uint8)
    padded[: len(codes)] = codes
    s = grid.scale
    pixels = padded.reshape(grid.rows, grid.columns).repeat(s, 1).repeat(s, 0)
    shared = pixels >= _SHARED
    if shared.any():
        np.subtract(pixels, _SHARED, out=pixels, where=shared)
        np.copyto(pixels, _LINE, where=shared & _dots(grid.rows * s, grid.columns * s))
    reserved = (pixels >= _FIRST) & (pixels & 1).view(bool)
    np.copyto(pixels, _HOLE, where=reserved & _hatch(grid.rows * s, grid.columns * s))
    if s > 1 and _lines_are_clear(snapshot, grid):
        marks = np.zeros(total, bool)
        marks[starts] = True
        line = pixels.reshape(grid.rows, s, grid.columns, s)[..., : -(-s // 4)]
        np.copyto(line, _LINE, where=marks.reshape(grid.rows, 1, grid.columns, 1))
    return png(pixels, palette(theme, colour_by))


def cells(
    snapshot: Snapshot, hues: dict[int, int], colour_by: str, ghost: Verdict | None
) -> tuple[np.ndarray, np.ndarray]:
    """(palette index of each slot uint8 [capacity], first slots of the rows)."""
    c = snapshot.columns
    need = ghost.need if ghost and ghost.kind != ADMITTED else 0
    hue = _row_hues(snapshot, hues, colour_by)
    free = c.owner < 0
    empty = np.where(_too_small(snapshot, need), _STUCK, _HOLE)
    empty[c.owner == RESERVED] = _REST
    if c.cached is not None:
        empty[c.cached > 0] = _CACHED
    full = _FIRST + 2 * hue + _SHARED * (c.refs > 1)
    written = np.where(free, empty, full).astype(np.uint8)
    rest = np.where(free, empty, _FIRST + 2 * hue + 1).astype(np.uint8)
    lengths = np.stack([c.used, c.size - c.used], axis=1).reshape(-1)
    return np.stack([written, rest], axis=1).reshape(-1).repeat(lengths), c.start


def palette(theme: Theme, colour_by: str) -> list[tuple[int, int, int]]:
    """Colours of the palette indices: line, hole, stuck hole, behind the pool, cached, none,
    then hues."""
    colours = [theme.paper, theme.hole, theme.stuck, theme.paper, theme.cached, theme.paper]
    for written in _ramp(theme, colour_by):
        colours += [written, blend(written, theme.hole, 0.55)]
    return [rgb(colour) for colour in colours]


def _ramp(theme: Theme, colour_by: str) -> list[str]:
    if colour_by == "state":
        return [theme.written] * _HUES
    if colour_by == "age":
        old, young = theme.written, theme.lanes["paged"]
        return [blend(young, old, i / (_HUES - 1)) for i in range(_HUES)]
    return list(theme.hues)


def _row_hues(snapshot: Snapshot, hues: dict[int, int], colour_by: str) -> np.ndarray:
    """Hue of each row, 0..11; for age: 11 is the youngest."""
    owner = snapshot.columns.owner
    if not len(snapshot.seq_id) or colour_by == "state":
        return np.zeros(len(owner), np.int64)
    order = np.argsort(snapshot.seq_id)
    ids = snapshot.seq_id[order]
    if colour_by == "age":
        rank = np.argsort(np.argsort(snapshot.seq_since, kind="stable"), kind="stable")
        value = (rank * (_HUES - 1) // max(len(rank) - 1, 1))[order]
    else:
        value = np.array([hues.get(int(i), 0) for i in ids], np.int64)
    at = np.clip(np.searchsorted(ids, owner), 0, len(ids) - 1)
    return np.where(owner < 0, 0, value[at])


def _too_small(snapshot: Snapshot, need: int) -> np.ndarray:
    """Rows that are holes in which the waiting head does not fit (contiguous only)."""
    c = snapshot.columns
    if not need or snapshot.paged:
        return np.zeros(len(c.owner), bool)
    return (c.owner == HOLE) & (c.size < need)


def _lines_are_clear(snapshot: Snapshot, grid: Grid) -> bool:
    """Lines would hide the cells when blocks are only a few pixels wide."""
    return not snapshot.paged or snapshot.grain * grid.scale >= 12


@lru_cache(maxsize=16)
def _dots(height: int, width: int) -> np.ndarray:
    y, x = np.ogrid[:height, :width]
    return (x % 6 < 2) & (y % 6 < 2)


@lru_cache(maxsize=16)
def _hatch(height: int, width: int) -> np.ndarray:
    y, x = np.ogrid[:height, :width]
    return (x + y) % 8 < 3


def png(pixels: np.ndarray, colours: list[tuple[int, int, int]]) -> str:
    image = Image.frombytes("P", pixels.shape[::-1], pixels.tobytes())
    image.putpalette([part for colour in colours for part in colour])
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=3)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


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
    if not snapshot.paged:
        return [
            ("hatch", "reserved", "reserved, unwritten"),
            ("fill", "hole", "hole"),
            ("fill", "stuck", "hole too small for the head"),
            ("ghost", "alarm", "head of the queue"),
        ]
    rows = [("hatch", "reserved", "block tail"), ("fill", "hole", "free block")]
    if snapshot.columns.cached is not None and snapshot.columns.cached.any():
        rows.append(("fill", "cached", "free, keeps a prefix"))
    if int(snapshot.columns.refs.max()) > 1:
        rows.append(("dots", "written", "shared by several"))
    return rows


def map_alt(snapshot: Snapshot, name: str) -> str:
    """What the map shows, in words."""
    sizes = holes(snapshot)
    return (
        f"Memory map, {name}: {number(snapshot.capacity)} slots, "
        f"{number(snapshot.free)} free in {len(sizes)} holes, largest admissible request "
        f"{number(snapshot.admissible)}, {snapshot.counters.running} requests running."
    )
