"""The study's bars and the sweep's lines and heat maps."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import pytest

from kvviz.studies.paper import PARTS, SYSTEMS, empty_report
from kvviz.views import paper, sweep
from kvviz.views.theme import DARK, LIGHT, THEMES


def measured(mean: float) -> dict:
    return {"mean": mean, "low": mean - 1, "high": mean + 1, "deviation": 0.5}


@pytest.fixture
def report() -> dict:
    """Every part measured as 25, and 9 requests in a batch."""
    made = empty_report()
    for system in made["systems"].values():
        system["measured"] = {part: measured(25.0) for part in PARTS} | {"batched": measured(9.0)}
    return made


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda t: t.name)
def test_plotly_takes_the_bars(report, theme):
    """The page would show no figure; before anything is measured, too."""
    for made in (report, empty_report()):
        go.Figure(paper.bars(made, theme))
        go.Figure(paper.batched(made, theme))


def test_published_and_measured_never_share_a_style(report):
    """Which bar is whose could not be told."""
    for figure in (paper.bars(report, LIGHT), paper.batched(report, LIGHT)):
        for trace in figure["data"]:
            theirs = trace["y"][1][0] == paper.PUBLISHED
            assert theirs == (trace["marker"]["line"]["width"] > 0)
            if trace["name"] != "not divided":
                assert theirs == ("pattern" in trace["marker"])


def test_bars_hold_the_numbers(report):
    """A bar would have another system's length."""
    data = paper.bars(report, LIGHT)["data"]
    by = {(trace["name"], trace["y"][1][0]): trace["x"] for trace in data}
    assert by["token states", "paper"] == [20.4, 26.8, 38.2, 96.3]
    assert by["internal", "paper"] == [57.3, 13.6, 0.0, None]
    assert by["not divided", "paper"] == [None, None, None, 3.7]
    assert by["internal", "here"] == [25.0] * 4
    assert data[0]["y"][0] == list(SYSTEMS)
    assert paper.batched(report, LIGHT)["data"][0]["x"] == [7.0, 9.81, 13.62, 30.42]


def test_lines_leave_gaps_and_show_the_seeds():
    """What is not known would be drawn as 0; the spread would be wrong."""
    means = {"paged": np.array([2.0, np.nan]), "contiguous": np.array([1.0, 3.0])}
    seeds = {"paged": np.array([[1.0, 3.5], [np.nan, np.nan]])}
    figure = sweep.lines("a.b", (8, 16), means, DARK, title="t", by_seed=seeds)
    go.Figure(figure)
    first, second = figure["data"]
    assert first["y"] == [2.0, None] and first["x"] == ["8", "16"]
    assert first["error_y"]["array"] == [1.5, 0] and first["error_y"]["arrayminus"] == [1.0, 0]
    assert second["error_y"] == {"visible": False}
    assert first["line"]["color"] == DARK.lanes["paged"]


def test_heat_maps_share_their_colours():
    """Equal colours in two panels would mean different numbers."""
    one, two = np.array([[1.0, np.nan]]), np.array([[5.0, 3.0]])
    limits = sweep.colour_limits([one, two])
    assert limits == (1.0, 5.0)
    assert sweep.colour_limits([np.full((1, 1), np.nan)]) == (0.0, 1.0)
    low, high = sweep.colour_limits([np.full((2, 2), 0.0)])
    assert low < high
    figure = sweep.heat(
        ("a", "b"), ((8,), ("x", "y")), one, "paged", LIGHT, title="t", limits=limits
    )
    go.Figure(figure)
    (trace,) = figure["data"]
    assert trace["z"] == [[1.0, None]] and trace["text"] == [["1", ""]]
    assert (trace["zmin"], trace["zmax"]) == limits
    assert (trace["x"], trace["y"]) == (["x", "y"], ["8"])
