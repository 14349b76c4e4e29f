"""The lesson's maps: lines that lead where the slots went."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.records import HOLE, Columns, Move
from kvviz.views.lesson import block_lines, lesson_map
from kvviz.views.strip import StripRow
from kvviz.views.theme import THEMES


def row(label: str, *pieces: tuple[int, int]) -> StripRow:
    """pieces: (size, owner), one after another."""
    size = np.array([s for s, _ in pieces], np.int64)
    owner = np.array([o for _, o in pieces], np.int64)
    live = owner != HOLE
    return StripRow(
        label,
        Columns(np.cumsum(size) - size, size, size * live, owner, live.astype(np.int64)),
        {0: "a", 1: "b"},
    )


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_a_move_is_a_line_between_the_rows(theme):
    """It would start or end beside the region, or cross the bars."""
    rows = [row("before", (40, HOLE), (60, 1)), row("after", (60, 1), (40, HOLE))]
    figure = lesson_map(rows, theme, capacity=100, paged=False, moves=[Move(40, 0, 60, 1)])
    bars, line = figure["data"]
    assert line["x"] == [70, 30, None]
    top, bottom, _ = line["y"]
    assert bars["width"] / 2 == pytest.approx(top) == pytest.approx(2 - bottom)
    assert sorted(set(bars["y"])) == [0, 2]
    texts = [note["text"] for note in figure["layout"]["annotations"]]
    assert texts == ["40", "<b>b</b>", "<b>b</b>", "40"]


def test_no_line_without_a_move():
    """An empty row would stand between the maps."""
    rows = [row("before", (100, HOLE)), row("after", (60, 0), (40, HOLE))]
    figure = lesson_map(rows, THEMES["light"], capacity=100, paged=False)
    assert len(figure["data"]) == 1 and sorted(set(figure["data"][0]["y"])) == [0, 1]


def test_blocks_lead_to_their_places():
    """A block would be joined with another's place."""
    pool = row("pool", (10, 0), (10, 1), (10, HOLE), (10, 1))
    slots = np.concatenate([np.arange(30, 40), np.arange(10, 15)])
    figure = block_lines("b", 1, slots, pool, THEMES["dark"], capacity=40, block=10)
    assert figure["data"][1]["x"] == [5, 35, None, 15, 15, None]
