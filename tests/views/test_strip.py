"""The strip: a row a step, told from integers."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.records import HOLE, RESERVED, SIBLINGS, Columns
from kvviz.views.strip import MOST_PIECES, StripRow, is_coarse, over_steps, strip
from kvviz.views.theme import THEMES, blend

LIGHT = THEMES["light"]


def columns(*rows: tuple[int, int, int]) -> Columns:
    """(size, used, owner) of each row, one behind the other."""
    size, used, owner = (np.array(part, np.int64) for part in zip(*rows, strict=True))
    return Columns(np.cumsum(size) - size, size, used, owner, (owner >= 0).astype(np.int64))


def bars(figure) -> list[tuple[int, int, int, str]]:
    """(row, start, size, colour)"""
    (trace,) = figure["data"]
    return list(zip(trace["y"], trace["base"], trace["x"], trace["marker"]["color"], strict=True))


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_bars_are_the_slots_of_their_owners(theme):
    """A region would be drawn elsewhere, or as another's."""
    row = StripRow("a", columns((4, 3, 0), (6, 0, HOLE), (2, 2, SIBLINGS), (1, 0, RESERVED)), {})
    found = bars(strip([row, row], theme, capacity=13, paged=False))
    expected = [
        (0, 3, theme.hues[0]), (3, 1, blend(theme.hues[0], theme.hole, 0.4)), (4, 6, theme.hole),
        (10, 2, theme.hues[5]), (12, 1, theme.grid),
    ]  # fmt: skip
    assert found == [(at, *bar) for at in (0, 1) for bar in expected]


def test_blocks_of_one_request_are_one_bar():
    """A pool of many blocks would be too much to draw."""
    row = StripRow("a", columns(*[(16, 16, 1)] * 9, (16, 5, 1), (16, 0, HOLE), (16, 0, HOLE)), {})
    found = bars(strip([row], LIGHT, capacity=192, paged=True))
    assert [(start, size) for _, start, size, _ in found] == [(0, 149), (149, 11), (160, 32)]


def test_hover_names_the_owner_without_markup():
    """A name from a file could bring markup with it."""
    row = StripRow("<b>", columns((4, 3, 0), (6, 0, HOLE)), {0: "<i>&"})
    figure = strip([row], LIGHT, capacity=10, paged=False, chosen=0)
    assert figure["data"][0]["hovertext"] == [
        "&lt;i>&amp;: 3 slots at 0",
        "&lt;i>&amp;, reserved: 1 slots at 3",
        "free: 6 slots at 4",
    ]
    assert figure["layout"]["yaxis"]["ticktext"] == ["<b>&lt;b></b>"]


def test_the_ghost_lies_over_the_largest_hole():
    """The refused request would be shown where there is no place, or outside the pool."""
    pool = columns((10, 0, HOLE), (10, 10, 0), (20, 0, HOLE), (10, 10, 1))
    figure = strip(
        [StripRow("ask", pool, {}, 25, "fragmented"), StripRow("b", pool, {}, 40, "capacity")],
        LIGHT,
        capacity=50,
        paged=False,
    )
    shapes = figure["layout"]["shapes"]
    assert [(s["x0"], s["x1"]) for s in shapes] == [(20, 45), (10, 50)]
    assert [s["y0"] < at < s["y1"] for at, s in enumerate(shapes)] == [True, True]
    notes = [(a["y"], a["text"]) for a in figure["layout"]["annotations"]]
    assert notes == [(0, "✕ fragmented: 25"), (1, "▼ capacity: 40")]


def test_a_paged_pool_has_no_one_place_for_a_ghost():
    """It would claim that blocks must be adjacent."""
    row = StripRow("ask", columns((16, 0, HOLE), (16, 16, 0)), {}, 32, "capacity")
    figure = strip([row], LIGHT, capacity=32, paged=True)
    assert figure["layout"]["shapes"] == []
    assert len(figure["layout"]["annotations"]) == 1


def test_very_many_pieces_are_summed_up():
    """The browser would be given tens of thousands of bars, or the sums would be wrong."""
    few = columns(*[(1, 1, 0), (1, 0, HOLE)] * (MOST_PIECES // 2))
    many = columns(*[(1, 1, 0), (1, 0, HOLE)] * 2048)
    assert (is_coarse(StripRow("", few, {})), is_coarse(StripRow("", many, {}))) == (False, True)
    figure = strip([StripRow("", many, {})], LIGHT, capacity=4096, paged=False)
    assert len(bars(figure)) == 256
    assert {colour for *_, colour in bars(figure)} == {blend(LIGHT.written, LIGHT.hole, 0.5)}
    assert sum(size for _, _, size, _ in bars(figure)) == 4096
    assert figure["data"][0]["hovertext"][1] == "slots 16 to 31: 50% in use"


def test_over_steps_shows_what_was_counted():
    """The curve would be another run's."""
    step, used, waiting = np.array([1, 2, 3]), np.array([5, 9, 0]), np.array([4, 1, 0])
    figure = over_steps(step, used, waiting, LIGHT, pool=10, chosen=2)
    assert [trace["y"] for trace in figure["data"]] == [[5, 9, 0], [4, 1, 0]]
    assert figure["layout"]["yaxis2"]["tickvals"] == [0, 2, 4]
    assert figure["layout"]["shapes"][0]["x0"] == 2


def test_owners_of_one_hue_differ_by_pattern():
    """The thirteenth request would look like the first."""
    row = StripRow("a", columns((4, 4, 0), (6, 0, HOLE), (2, 2, 12 * SIBLINGS)), {})
    marker = strip([row], LIGHT, capacity=12, paged=False)["data"][0]["marker"]
    assert marker["color"][0] == marker["color"][2] == LIGHT.hues[0]
    assert marker["pattern"]["shape"] == ["", "", "-"]
