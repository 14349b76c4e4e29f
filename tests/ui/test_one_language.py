"""The same colour for a lane and the same symbol for a verdict, wherever they are shown."""

from __future__ import annotations

import re

import pytest

from kvviz.caches.layouts import LANES
from kvviz.records import REFUSALS
from kvviz.views.theme import SIGNS, SYMBOLS, THEMES


def test_each_verdict_has_a_symbol_of_its_own():
    """Two reasons for a refusal would look like one."""
    assert set(SYMBOLS) == set(REFUSALS)
    assert len(set(SYMBOLS.values())) == len(SYMBOLS)
    shapes = {"x": "✕", "triangle-down": "▼", "circle": "●", "square": "■"}
    assert {verdict: shapes[SYMBOLS[verdict]] for verdict in SYMBOLS} == SIGNS


def test_the_live_key_shows_the_symbols_of_the_chart(root):
    """The key under the chart would explain other marks than are drawn."""
    text = (root / "kvviz/ui/scaffold.js").read_text()
    shown = dict(re.findall(r'\["sign", "free", "(\w+)", "(.)"\]', text))
    assert shown == {verdict: SIGNS[verdict] for verdict in shown}
    assert set(shown) >= {"fragmented", "capacity", "queued"}


@pytest.mark.parametrize("theme", THEMES)
def test_each_lane_has_a_colour_of_its_own(theme):
    """Two lanes side by side would be one, or a lane change its colour from page to page."""
    colours = THEMES[theme].lanes
    assert set(colours) == set(LANES)
    assert len(set(colours.values())) == len(colours)


def test_colours_are_named_in_one_place(root):
    """A page would draw a lane or a verdict in a colour of its own."""
    files = [*root.glob("pages/*.py"), *root.glob("kvviz/ui/*.py"), *root.glob("kvviz/views/*.py")]
    own = {path.name for path in files if re.search(r"[\"']#[0-9a-fA-F]{6}[\"']", path.read_text())}
    assert own == {"theme.py"}
