"""The figures of a capacity plan: parts that add up, and two styles for two kinds of number."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from kvviz.capacity.plan import Ask, GiB, make_plan
from kvviz.capacity.presets import model
from kvviz.capacity.reader import read_shape
from kvviz.capacity.sizes import read_sizes
from kvviz.views.capacity_plan import MODELLED, concurrency, gpu_memory
from kvviz.views.theme import DARK, LIGHT


def test_memory_bar_adds_up_to_the_card():
    """A part of the GPU is drawn twice, or not at all."""
    known = model("Llama-3.1-8B")
    ask = Ask(parameters=known.parameters, side_gib=2)
    plan = make_plan(read_shape(known.config), read_sizes(known.config), ask)
    for theme in (LIGHT, DARK):
        figure = gpu_memory(plan, theme)
        go.Figure(figure)
        sizes = {part["name"]: part["x"][0] for part in figure["data"]}
        assert sum(sizes.values()) == pytest.approx(80)
        assert sizes["KV pool"] * GiB == plan.pool_bytes and sizes["side buffers"] == 2
        hatched = {p["name"] for p in figure["data"] if p["marker"]["pattern"]["shape"]}
        assert hatched == {"activation peak (modelled)"}


def test_modelled_and_measured_differ_in_style():
    """One is taken for the other, or what was not measured is drawn as 0."""
    outcomes = [
        {"name": "contiguous, max", "divided": 3.5, "measured": None},
        {"name": "paged", "divided": 10.0, "measured": 9.0},
    ]
    figure = concurrency(outcomes, LIGHT)
    go.Figure(figure)
    modelled, measured = figure["data"]
    assert (modelled["x"], measured["x"]) == ([3.5, 10.0], [None, 9.0])
    assert modelled["marker"]["pattern"]["shape"] == MODELLED
    assert measured["marker"]["pattern"]["shape"] == ""
