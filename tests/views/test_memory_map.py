"""The memory map, read back from its PNG, against the snapshot."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from kvviz.records import ADMITTED, CAPACITY, FRAGMENTED, HOLE, Columns, Snapshot, Verdict
from kvviz.ui.packed import as_json, deflated
from kvviz.views.memory_map import Grid, _outline, legend, map_alt, memory_map
from kvviz.views.theme import DARK, LIGHT, Theme, blend, ink, rgb
from tests.views.made import shots_after, snapshot

SMALL = (("memory.slots", 4096), ("memory.context", 1024), ("mix.rate", 0.4))
LARGE = (("memory.slots", 65536), ("mix.rate", 1.0))
FRAGMENTS = [(20, 20, 1), (30, 0, HOLE), (40, 5, 2), (10, 0, HOLE), (28, 28, 3)]
THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)


@pytest.mark.parametrize("changes", [SMALL, LARGE], ids=["4k", "64k"])
@pytest.mark.parametrize("lane", ["contiguous", "paged"])
@THEMES
def test_the_picture_is_the_snapshot(theme, lane, changes):
    """The map would show memory that is not so."""
    shot = shots_after("chat-and-documents", 300, *changes)[lane]
    hues = {int(i): k % 12 for k, i in enumerate(shot.seq_id)}
    check(shot, theme, hues, {i: theme.hues[h] for i, h in hues.items()})


@pytest.mark.parametrize("block", [1, 4, 16])
def test_the_picture_of_blocks_of_any_size(block):
    """The lines between small blocks would hide what is in them."""
    changes = (*SMALL, ("paged.block_size", block))
    shot = shots_after("chat-and-documents", 200, *changes)["paged"]
    hues = {int(i): k % 12 for k, i in enumerate(shot.seq_id)}
    check(shot, LIGHT, hues, {i: LIGHT.hues[h] for i, h in hues.items()})


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(
            1,
        ),
        16,
    ],
)
@THEMES
def test_holes_too_small_for_the_head_stand_out(theme, block):
    """One would not see why the head is refused; or free blocks, which all do, would look bad."""
    shots = shots_after("chat-and-documents", 300, *SMALL, ("paged.block_size", block))
    for lane, shot in shots.items():
        need = int(shot.admissible) + 1 if lane == "contiguous" else shot.free + block
        sizes = shot.columns.size[shot.columns.owner == HOLE]
        ghost = Verdict(FRAGMENTED, int(np.median(sizes)) + 1, shot.free, shot.admissible)
        for verdict in (ghost, Verdict(CAPACITY, need, shot.free, shot.admissible)):
            stuck = verdict.need if lane == "contiguous" else 0
            check(
                shot, theme, {}, dict.fromkeys(map(int, shot.seq_id), theme.hues[0]), verdict, stuck
            )


def test_an_admitted_head_marks_nothing():
    """Room that the head just got would look as if it were too small."""
    shot = snapshot(FRAGMENTS)
    figure = memory_map(shot, LIGHT, {}, name="contiguous", ghost=Verdict(ADMITTED, 20, 40, 30))
    assert figure["layout"]["shapes"] == []
    check(shot, LIGHT, {}, dict.fromkeys((1, 2, 3), LIGHT.hues[0]), Verdict(ADMITTED, 20, 40, 30))


def test_cells_behind_the_pool_are_paper():
    """A pool that does not fill its last row would look larger than it is."""
    shot = snapshot([(90, 90, 1), (10, 0, HOLE)])
    grid = Grid.of(100)
    assert grid.columns * grid.rows > 100
    check(shot, DARK, {1: 3}, {1: DARK.hues[3]})


@THEMES
def test_colour_by_state(theme):
    """Colours would tell requests apart where they must not."""
    shot = snapshot(FRAGMENTS)
    check(shot, theme, {1: 1, 2: 2, 3: 3}, dict.fromkeys((1, 2, 3), theme.written), by="state")


@THEMES
def test_the_youngest_has_the_young_colour(theme):
    """By age, a request would go from old to young while it runs."""
    shot = snapshot(FRAGMENTS, since={1: 50, 2: 90, 3: 7})
    assert rgb(theme.lanes["paged"]) == _colour_of(shot, theme, 2, "age")
    assert rgb(theme.written) == _colour_of(shot, theme, 3, "age")
    assert _colour_of(shot, theme, 1, "age") not in (rgb(theme.written), rgb(theme.lanes["paged"]))


@given(st.integers(1, 1 << 22))
def test_the_grid_covers_the_pool(capacity):
    """Slots would have no cell, or the hover's arithmetic would be off."""
    grid = Grid.of(capacity)
    assert bin(grid.columns).count("1") == 1
    assert grid.columns * (grid.rows - 1) < capacity <= grid.columns * grid.rows
    assert grid.scale >= 1


def test_a_ghost_lies_on_the_largest_hole():
    """One could not see what the head would need, and where."""
    verdict = Verdict(FRAGMENTED, 35, 40, 30)
    shapes = _shapes(snapshot(FRAGMENTS), verdict)
    columns = Grid.of(128).columns
    assert len(shapes) == 2
    for shape in shapes:
        assert set(range(20, 55)) == _cells(shape["path"], columns, 128)
    assert LIGHT.alarm == shapes[-1]["line"]["color"]


def test_a_ghost_stays_inside_the_pool():
    """The ghost of a long request would end in cells that do not exist."""
    rows = [(100, 100, 1), (28, 0, HOLE)]
    shapes = _shapes(snapshot(rows), Verdict(CAPACITY, 60, 28, 28))
    assert set(range(68, 128)) == _cells(shapes[0]["path"], Grid.of(128).columns, 128)
    shapes = _shapes(snapshot(rows), Verdict(CAPACITY, 500, 28, 28))
    assert set(range(128)) == _cells(shapes[0]["path"], Grid.of(128).columns, 128)


def test_no_ghost_without_reason():
    """A ghost would lie over a lane in which nothing waits, or which has no holes."""
    refused = Verdict(CAPACITY, 35, 0, 0)
    assert _shapes(snapshot(FRAGMENTS), None) == []
    assert _shapes(snapshot([(64, 64, 1)]), refused) == []
    paged = snapshot([(8, 8, 1), (8, 0, HOLE)], grain=8)
    assert _shapes(paged, Verdict(CAPACITY, 16, 8, 8), "paged") == []


def test_no_ghost_in_blocks_of_one_slot():
    """A paged pool would look as if it needed one hole."""
    shot = shots_after("chat-and-documents", 100, *SMALL, ("paged.block_size", 1))["paged"]
    verdict = Verdict(CAPACITY, shot.free + 1, shot.free, shot.free)
    assert _shapes(shot, verdict, "paged") == []


@given(st.integers(0, 63), st.integers(1, 64), st.sampled_from([4, 8, 16]))
def test_an_outline_holds_its_cells_and_no_other(start, size, columns):
    """The ghost would be of another size than the request."""
    stop = min(start + size, 64)
    path = _outline(start, stop, columns)
    assert set(range(start, stop)) == _cells(path, columns, 64)
    assert stop - start == pytest.approx(sum(_area(piece) for piece in _pieces(path)))


def test_the_map_in_words_has_its_numbers():
    """A screen reader would tell something else than the picture."""
    text = map_alt(snapshot(FRAGMENTS), "contiguous")
    assert text == (
        "Memory map, contiguous: 128 slots, 40 free in 2 holes, largest admissible request 30, "
        "3 requests running."
    )


def check(
    shot: Snapshot,
    theme: Theme,
    hues: dict[int, int],
    colours: dict[int, str],
    ghost: Verdict | None = None,
    stuck: int = 0,
    by: str = "request",
) -> None:
    """Every cell against the snapshot's rows, without the line at a row's start."""
    lane = "paged" if shot.grain > 1 else "contiguous"
    grid = Grid.of(shot.capacity)
    figure = memory_map(shot, theme, hues, name=lane, colour_by=by, ghost=ghost)
    blocks = _blocks(figure, grid)
    c = shot.columns
    paper, hole = rgb(theme.paper), rgb(theme.hole)
    both: set[tuple[int, ...]] = set()
    wanted: set[tuple[int, ...]] = set()
    for start, size, used, owner in zip(c.start, c.size, c.used, c.owner, strict=True):
        line = blocks[start, :, 0].reshape(-1, 3)
        rest = blocks[start : start + size, :, -(-grid.scale // 4) :]
        assert len({tuple(p) for p in line.tolist()}) <= 2
        if grid.scale == 1:
            rest = blocks[start : start + size]
        if owner == HOLE:
            _all_are(rest, rgb(theme.stuck) if size < stuck else hole)
            continue
        written = rgb(colours[int(owner)])
        pale = rgb(blend(colours[int(owner)], theme.hole, 0.55))
        _all_are(rest[:used], written)
        found = _colours(rest[used:])
        assert found <= {pale, hole}
        if used < size:
            both |= found
            wanted |= {pale, hole}
    assert len(wanted) == 0 or {hole} < both
    assert wanted <= both or len(both) > 2
    _all_are(blocks[shot.capacity :], paper)


def _all_are(cells: np.ndarray, colour: tuple[int, int, int]) -> None:
    assert (cells == np.array(colour)).all(), f"expected {colour}, found {_colours(cells)}"


def _colours(cells: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(p) for p in np.unique(cells.reshape(-1, 3), axis=0).tolist()}


def _blocks(figure: dict, grid: Grid) -> np.ndarray:
    """RGB of each cell's pixels in slot order: [cells, scale, scale, 3]."""
    (placed,) = figure["layout"]["images"]
    assert (0, 0, grid.columns, grid.rows) == tuple(placed[k] for k in ("x", "y", "sizex", "sizey"))
    assert [0, grid.columns] == figure["layout"]["xaxis"]["range"]
    assert [grid.rows, 0] == figure["layout"]["yaxis"]["range"]
    assert placed["source"].startswith("data:image/png;base64,")
    image, s = drawn(figure), grid.scale
    assert (grid.rows * s, grid.columns * s, 3) == image.shape
    cells = image.reshape(grid.rows, s, grid.columns, s, 3).swapaxes(1, 2)
    return cells.reshape(-1, s, s, 3)


def _colour_of(shot: Snapshot, theme: Theme, request: int, by: str) -> tuple[int, ...]:
    grid = Grid.of(shot.capacity)
    figure = memory_map(shot, theme, {}, name="contiguous", colour_by=by)
    start = int(shot.columns.start[shot.columns.owner == request][0])
    return tuple(_blocks(figure, grid)[start, -1, -1].tolist())


def _shapes(shot: Snapshot, ghost: Verdict | None, name: str = "contiguous") -> list[dict]:
    return memory_map(shot, LIGHT, {}, name=name, ghost=ghost)["layout"]["shapes"]


def _pieces(path: str) -> list[list[tuple[float, float]]]:
    """Corners of each closed piece of a path of M, H, V and Z."""
    pieces: list[list[tuple[float, float]]] = []
    x = y = 0.0
    for order, a, b in re.findall(r"([MHVZ])(?:(-?\d+)(?:,(-?\d+))?)?", path):
        if order == "M":
            x, y = float(a), float(b)
            pieces.append([])
        elif order == "H":
            x = float(a)
        elif order == "V":
            y = float(a)
        else:
            continue
        pieces[-1].append((x, y))
    return pieces


def _area(piece: list[tuple[float, float]]) -> float:
    turned = piece[1:] + piece[:1]
    return abs(sum(a * d - c * b for (a, b), (c, d) in zip(piece, turned, strict=True))) / 2


def _cells(path: str, columns: int, count: int) -> set[int]:
    """Slots whose cell's middle lies in the path."""
    pieces = _pieces(path)
    return {
        slot
        for slot in range(count)
        if any(_inside(p, slot % columns + 0.5, slot // columns + 0.5) for p in pieces)
    }


def _inside(piece: list[tuple[float, float]], x: float, y: float) -> bool:
    turned = piece[1:] + piece[:1]
    crossings = sum(
        a == c and a > x and min(b, d) < y < max(b, d)
        for (a, b), (c, d) in zip(piece, turned, strict=True)
    )
    return crossings % 2 == 1


@THEMES
def test_requests_of_one_hue_differ_by_pattern(theme):
    """With more than twelve requests, two would look like one."""
    shot = snapshot([(64, 64, 1), (64, 64, 2), (64, 32, 3)])
    grid = Grid.of(shot.capacity)
    figure = memory_map(shot, theme, {1: 4, 2: 4 + 12, 3: 4 + 24}, name="contiguous")
    pixels = drawn(figure).reshape(grid.rows, grid.scale, grid.columns, grid.scale, 3)
    cells = pixels.transpose(0, 2, 1, 3, 4).reshape(-1, grid.scale**2, 3)
    hue, mark = rgb(theme.hues[4]), rgb(ink(theme.hues[4]))
    inked = [{tuple(map(int, p)) for p in cells[at].reshape(-1, 3)} for at in (10, 74, 138)]
    assert inked[0] == {hue}
    assert inked[1] == inked[2] == {hue, mark}
    assert (cells[74] != cells[138]).any()  # rows are not columns


def large_pool(owner: np.ndarray, block: int) -> Snapshot:
    """A full block to each of these owners, HOLE among them."""
    taken = owner != HOLE
    ids = np.unique(owner[taken])
    start = np.arange(len(owner)) * block
    size = np.full(len(owner), block)
    return replace(
        snapshot([(64, 64, 1)]),
        capacity=len(owner) * block,
        grain=block,
        paged=True,
        columns=Columns(start, size, np.where(taken, block, 0), owner, taken.astype(np.int64)),
        **{f"seq_{n}": ids for n in ("id", "used", "life", "held", "prompt", "since")},
    )


def test_of_a_large_pool_some_slots_are_drawn_and_the_key_says_so():
    """A million blocks would be a megabyte a frame; or the map would show what is not there."""
    blocks, block = 1 << 20, 4
    owner = np.repeat(np.arange(16), blocks // 16)
    owner[owner == 5] = HOLE
    shot = large_pool(owner, block)
    assert shot.free == shot.capacity // 16
    grid = Grid.of(shot.capacity)
    figure = memory_map(shot, LIGHT, {i: i % 12 for i in range(16)}, name="paged")
    pixels = drawn(figure)
    for part in range(16):
        y = int((part + 0.5) / 16 * pixels.shape[0])
        colour = LIGHT.hole if part == 5 else LIGHT.hues[part % 12]
        assert (pixels[y] == rgb(colour)).all(), part
    assert ("note", "free", f"one slot of {grid.every**2} is drawn") in legend(shot)
    assert all(row[0] != "note" for row in legend(snapshot([(64, 64, 1)])))


@pytest.mark.parametrize("block", [4, 8, 16, 32])
def test_a_scattered_pool_is_sent_in_60_kilobytes(block):
    """After days of service no two neighbours are one request's: a picture of noise fills the
    line, or costs so much that it is not the pool's any more."""
    owner = np.random.default_rng(1).integers(-1, 60, 1 << 20)
    shot = large_pool(owner, block)
    looks = {i: i for i in range(60)}
    figure = memory_map(shot, LIGHT, looks, name="paged")
    assert len(deflated(as_json(figure))) < 60_000
    grid, pixels = Grid.of(shot.capacity), drawn(figure)
    every = grid.every
    assert pixels.shape == (grid.rows // every, grid.columns // every, 3)
    y, x = np.mgrid[: pixels.shape[0], : pixels.shape[1]] * every + every // 2
    who = owner[(y * grid.columns + x) // block]
    hues = np.array([rgb(hue) for hue in LIGHT.hues])
    inks = np.array([rgb(ink(hue)) for hue in LIGHT.hues])
    free = who == HOLE
    assert (pixels[free] == rgb(LIGHT.hole)).all()
    plain, inked = ((pixels == colours[who % 12]).all(axis=2) for colours in (hues, inks))
    assert (plain | inked | free).all() and plain[who < 12].sum() == (who[who < 12] >= 0).sum()


def drawn(figure: dict) -> np.ndarray:
    """The picture of a map, uint8 [height, width, 3]."""
    source = figure["layout"]["images"][0]["source"]
    image = Image.open(io.BytesIO(base64.b64decode(source.split(",")[1])))
    return np.asarray(image.convert("RGB"))
