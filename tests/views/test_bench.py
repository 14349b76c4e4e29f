"""A bench's chart: each bar against its own target, told in words as well."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from kvviz.bench.result import Measured
from kvviz.views.bench import against_targets, finding, ratio
from kvviz.views.theme import THEMES

FIGURES = [
    Measured("speed", 20.0, "x", at_least=5),
    Measured("a step", 3.0, "ms", at_most=1.5, floor=0.75, floor_of="bytes"),
    Measured("context", 3.0, "s"),
    Measured("<b>half</b>", 0.5, "x", at_most=1),
]


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_bars_are_value_over_target(theme):
    """A bar would be on the wrong side of its line, or a context figure would have one."""
    figure = against_targets(FIGURES, theme)
    go.Figure(figure)
    bars, floors = figure["data"]
    end = figure["layout"]["xaxis"]["range"][1]
    assert bars["x"] == [end, 2.0, 0.5] and 3 < end < 4
    told = [a["text"].endswith("(bar cut)") for a in figure["layout"]["annotations"]]
    assert told == [True, False, False]
    assert (floors["x"], floors["y"]) == ([0.5], [1])
    assert [s["x0"] for s in figure["layout"]["shapes"]] == [1, 1, 1]


def test_words_tell_what_colours_tell():
    """Who sees no red would not see what is missed."""
    theme = THEMES["light"]
    words = [a["text"] for a in against_targets(FIGURES, theme)["layout"]["annotations"]]
    assert "✓ held" in words[0] and "20 x, at least 5 x" in words[0]
    assert "✗ missed" in words[1] and "3 ms, at most 1.5 ms, floor 0.75 ms" in words[1]
    assert "&lt;b&gt;half" in words[2]


def test_the_name_states_the_finding():
    """A screen reader would hear that there is a chart."""
    assert finding("engine", FIGURES) == (
        "engine: 2 of 3 targets held. Missed: a step: 3 ms, at most 1.5 ms."
    )


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        (Measured("a", 3, "x", at_least=0), None),
        (Measured("a", -3, "x", at_most=2), 0),
        (Measured("a", 3, "x"), None),
        (Measured("a", 3, "x", at_most=6), 0.5),
    ],
)
def test_odd_targets(figure, expected):
    """A target of 0 would divide by it."""
    assert ratio(figure) == expected


def test_without_targets_there_is_no_chart():
    """An empty chart would be drawn."""
    assert against_targets(FIGURES[2:3], THEMES["dark"]) is None
