"""Figures of a replay."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from kvviz.records import REFUSALS
from kvviz.views import replay
from kvviz.views.theme import DARK, LIGHT


def lane(kind: str, admissible: list[int]) -> dict:
    return {
        "lane": kind,
        "series": {
            "step": [0, 10, 20],
            "free": [90, 50, 70],
            "admissible": admissible,
            "running": [1, 2, 3],
            "waiting": [0, 5, 0],
        },
        "refused": dict.fromkeys(REFUSALS, 4),
        "waited": {"p50_s": 0.0, "p95_s": 1.5, "p99_s": None},
    }


LANES = {
    "contiguous": lane("contiguous", [90, 20, 30]),
    "best": lane("contiguous", [90, 40, 60]),
    "paged": lane("paged", [90, 50, 70]),
}


@pytest.mark.parametrize("theme", [LIGHT, DARK])
@pytest.mark.parametrize(
    "figure",
    [
        lambda t: replay.free_and_admissible(LANES, t, 30.0),
        lambda t: replay.over_trace(LANES, t, 30.0, "waiting"),
        lambda t: replay.refusals(LANES, t),
        lambda t: replay.waits(LANES, t),
    ],
)
def test_plotly_draws_it(figure, theme):
    """The browser would leave something out without a word."""
    go.Figure(figure(theme))


def test_gap_and_colours():
    """A gap would be drawn where there is none, or two lanes be told apart by nothing."""
    figure = replay.free_and_admissible(LANES, LIGHT, 500.0)
    names = [trace["name"] for trace in figure["data"]]
    assert names == [
        "contiguous: free",
        "contiguous: admissible",
        "best: free",
        "best: admissible",
        "paged: free = admissible",
    ]
    assert figure["data"][0]["x"] == [0, 5, 10]
    assert [figure["data"][i]["line"]["dash"] for i in (1, 3, 4)] == ["solid", "dash", "solid"]
    assert figure["data"][1]["line"]["color"] == figure["data"][3]["line"]["color"]
    assert [t.get("fill") for t in figure["data"]] == [None, "tonexty", None, "tonexty", None]


def test_nothing_to_see_is_said():
    """An axis from 0 to 800m, and no bar: one would think that it failed."""
    idle = {"contiguous": LANES["contiguous"] | {"refused": dict.fromkeys(REFUSALS, 0)}}
    figure = replay.refusals(idle, LIGHT)
    assert figure["layout"]["annotations"][0]["text"] == "Nobody was refused."
    assert figure["layout"]["yaxis"]["dtick"] == 1
    assert "annotations" not in replay.refusals(LANES, LIGHT)["layout"]
