"""The hole histogram and the breakdown of the pool."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.metrics import hole_histogram, holes, paper_breakdown, textbook_breakdown
from kvviz.records import HOLE
from kvviz.views.breakdown import breakdown, legend
from kvviz.views.holes import histogram
from kvviz.views.theme import DARK, LIGHT
from tests.views.made import shots_after, snapshot

PARTS = ("written", "reserved", "internal", "external")
RUNS = pytest.mark.parametrize(
    "preset", ["chat-and-documents", "control", "reserve-max", "grow-in-place"]
)


@RUNS
def test_bars_are_the_holes(preset):
    """The histogram would count holes that are not there."""
    shots = shots_after(preset, 250)
    figure = histogram(shots, LIGHT, ask=None)
    assert list(shots) == [bar["name"] for bar in figure["data"]]
    for bar in figure["data"]:
        sizes = holes(shots[bar["name"]])
        edges, counts = hole_histogram(sizes, 8192)
        assert counts.tolist() == bar["y"]
        assert len(sizes) == sum(bar["y"])
        assert list(range(len(edges))) == bar["x"]
        assert [[f"{e:,}", f"{2 * e - 1:,}"] for e in edges] == bar["customdata"]


def test_holes_of_known_sizes():
    """A hole would be in the wrong bin."""
    rows = [(1, 1, 9), (1, 0, HOLE), (1, 1, 8), (3, 0, HOLE), (1, 1, 7), (4, 0, HOLE), (5, 5, 6)]
    (bar,) = histogram({"contiguous": snapshot(rows)}, LIGHT, ask=None)["data"]
    assert bar["y"] == [1, 1, 1, 0, 0]


@pytest.mark.parametrize(("ask", "at"), [(1, -0.5), (2, 0.5), (3, 1.085), (1024, 9.5)])
def test_the_next_request_lies_between_the_bins(ask, at):
    """Holes that hold the request would lie left of its line."""
    shots = {"contiguous": snapshot([(2048, 0, HOLE)])}
    (line,) = histogram(shots, DARK, ask=ask)["layout"]["shapes"]
    assert at == pytest.approx(line["x0"], abs=1e-3)
    assert line["x0"] == line["x1"]


@RUNS
@pytest.mark.parametrize("ask", [1, 300, 1024])
def test_each_row_is_the_whole_pool(preset, ask):
    """Shares of the pool would be more or less than all of it."""
    shots = shots_after(preset, 250)
    data = breakdown(shots, LIGHT, ask=ask)["data"]
    rows = np.array([bar["x"] for bar in data])
    assert rows.shape == (5, 4)
    np.testing.assert_allclose(np.full(4, 100.0), rows.sum(axis=0), atol=0.03)
    assert (rows >= 0).all()


@RUNS
def test_parts_are_those_of_the_metrics(preset):
    """The bars would not be what the definitions say."""
    shots = shots_after(preset, 250)
    data = breakdown(shots, LIGHT, ask=300)["data"]
    assert [f"{n}<br>{v}" for n in shots for v in ("paper", "textbook")] == data[0]["y"]
    columns = [
        parts
        for shot in shots.values()
        for parts in (paper_breakdown(shot, 300), textbook_breakdown(shot))
    ]
    for bar, part in zip(data, PARTS, strict=False):
        slots = [getattr(parts, part) for parts in columns]
        assert [round(100 * n / 8192, 2) for n in slots] == bar["x"]
        assert [f"{n:,}" for n in slots] == [row[0] for row in bar["customdata"]]


def test_blocks_of_one_slot_waste_nothing():
    """Scattered free blocks of 1 would be called waste, though any request can use them."""
    shot = shots_after("chat-and-documents", 300, ("paged.block_size", 1))["paged"]
    assert shot.free > 1000 and len(holes(shot)) > 4
    data = {b["name"]: b["x"] for b in breakdown({"paged": shot}, LIGHT, ask=1000)["data"]}
    assert data["external waste"] == [0, 0]


def test_each_part_of_a_bar_has_a_key():
    """A hatch would mean nothing to the reader."""
    figure = breakdown({"a": snapshot([(8, 8, 1), (8, 0, HOLE)])}, LIGHT, ask=1)
    assert [label for *_, label in legend()] == [trace["name"] for trace in figure["data"]]
    assert all(hasattr(LIGHT, colour) for _, colour, _ in legend())
