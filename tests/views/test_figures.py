"""Every figure of every kind of run is one that plotly takes and JSON holds."""

from __future__ import annotations

import json

import plotly.graph_objects as go
import pytest

from kvviz.live.published import view_lane
from kvviz.records import CAPACITY, FRAGMENTED, HOLE, Verdict
from kvviz.ui import frames
from kvviz.views import breakdown, capacity, holes
from kvviz.views.memory_map import COLOUR_BY, memory_map
from kvviz.views.theme import DARK, LIGHT, THEMES
from kvviz.views.unusable import unusable
from kvviz.workloads.presets import PRESETS
from tests.helpers import PAIRS
from tests.live.support import dry, publish
from tests.views.made import lanes_after, snapshot

NO_HOLE = Verdict(CAPACITY, 40, 0, 0)
HAND_MADE = {
    "empty": snapshot([(64, 0, HOLE)]),
    "full": snapshot([(40, 40, 1), (24, 3, 2)], head=NO_HOLE, waiting=[(3, 40)]),
    "odd size": snapshot([(37, 30, 1), (13, 0, HOLE), (51, 51, 2)]),
    "fragmented": snapshot(
        [(20, 20, 1), (30, 0, HOLE), (20, 5, 2), (30, 0, HOLE)],
        head=Verdict(FRAGMENTED, 50, 60, 30),
        waiting=[(3, 50)],
    ),
    "paged": snapshot([(8, 8, 1), (8, 0, HOLE), (8, 3, 1), (8, 0, HOLE)], grain=8),
}


@pytest.mark.parametrize("steps", [0, 1, 250])
@pytest.mark.parametrize("preset", PAIRS)
def test_figures_of_presets(preset, steps):
    """The browser would draw nothing, or not what the figure asks for."""
    published = publish(dry_preset(preset), steps)
    maps = {f"map-{name}" for name in published.lanes}
    for theme in THEMES.values():
        figures = frames.maps(published, theme, "request")
        figures |= frames.charts(published, theme)
        assert maps | {"time", "size", "holes", "bytes", "unusable"} == set(figures)
        for figure in figures.values():
            valid(figure)


@pytest.mark.parametrize("name", HAND_MADE)
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)
def test_figures_of_hand_made_snapshots(name, theme):
    """A full, an empty or an odd pool would break the page."""
    shot = HAND_MADE[name]
    lane = "paged" if shot.grain > 1 else "contiguous"
    for colour_by in COLOUR_BY:
        valid(memory_map(shot, theme, {}, name=lane, colour_by=colour_by, ghost=shot.head))
    for ask in (None, 1, 50):
        valid(capacity.over_size({lane: shot}, theme, largest=64, ask=ask))
        valid(holes.histogram({lane: shot}, theme, ask=ask))
        valid(unusable({lane: shot}, theme, largest=64, ask=ask))
    valid(breakdown.breakdown({lane: shot}, theme, ask=50))


def test_figures_of_a_run_with_every_verdict():
    """Marks of some verdict would be wrong."""
    lanes = lanes_after("chat-and-documents", 500, ("mix.rate", 0.6))
    views = {name: view_lane(lanes, name) for name in lanes.engines}
    assert {e.verdict for v in views.values() for e in v.refusals} >= {FRAGMENTED, CAPACITY}
    valid(
        capacity.over_time(
            {n: (v.series.step, v.series.free, v.series.admissible) for n, v in views.items()},
            {n: v.refusals for n, v in views.items()},
            LIGHT,
            window=600,
            capacity=8192,
        )
    )


def dry_preset(name: str):
    return dry(
        {
            **PRESETS[name].settings,
            "preset": name,
            "memory.slots": 4096,
            "memory.context": 1024,
            "mix.output_mean": 60,
        }
    )


def valid(figure: dict) -> None:
    """plotly checks every property's name and value."""
    go.Figure(json.loads(json.dumps(figure, allow_nan=False)))
    go.Figure(figure)
