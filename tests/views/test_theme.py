"""Contrast and distance of the colours, and the formats."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kvviz.build import LANES
from kvviz.views.theme import DARK, LIGHT, THEMES, blend, faded, number, rgb

BOTH = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)


@BOTH
def test_text_can_be_read(theme):
    """Titles and tick labels would be too pale (WCAG 2, AA: 4.5)."""
    assert contrast(theme.text, theme.paper) >= 4.5
    assert contrast(theme.quiet, theme.paper) >= 4.5


@BOTH
def test_lanes_can_be_seen(theme):
    """A lane's line would be too pale (WCAG 2, graphics: 3)."""
    for lane in LANES:
        assert contrast(theme.lanes[lane], theme.paper) >= 3
    assert contrast(theme.alarm, theme.paper) >= 3


@BOTH
def test_hues_stay_apart(theme):
    """Two requests would have what looks like one colour (OKLab distance)."""
    assert len(set(theme.hues)) == 12
    pairs = itertools.combinations(theme.hues, 2)
    assert min(np.linalg.norm(oklab(a) - oklab(b)) for a, b in pairs) >= 0.06


@BOTH
def test_holes_differ_from_requests(theme):
    """A request in some hue would look like a hole, or a stuck hole like any other."""
    for colour in (*theme.hues, theme.written, theme.stuck):
        assert np.linalg.norm(oklab(colour) - oklab(theme.hole)) >= 0.06


def test_themes_are_found_by_name():
    """The browser's order for a theme would be ignored."""
    assert {"light": LIGHT, "dark": DARK} == THEMES


def test_blend_and_faded():
    """Reserved slots would have a wrong colour."""
    assert blend("#ff0000", "#0000ff", 1) == "#ff0000"
    assert blend("#ff0000", "#0000ff", 0) == "#0000ff"
    assert blend("#ff8040", "#010000", 0.5) == "#804020"
    assert faded("#0102ff", 0.5) == "rgba(1,2,255,0.5)"


def test_number():
    """Large numbers would be hard to read."""
    assert tuple(map(number, (0, 999, 12340, 1234.6))) == ("0", "999", "12,340", "1,235")


def contrast(a: str, b: str) -> float:
    """WCAG 2: (lighter + 0.05) / (darker + 0.05)."""
    high, low = sorted((_luminance(a), _luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def oklab(colour: str) -> np.ndarray:
    """L, a, b (Ottosson 2020)."""
    lms = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    lab = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return lab @ np.cbrt(lms @ linear(colour))


def linear(colour: str) -> np.ndarray:
    """Linear light of an sRGB colour, 0 to 1."""
    c = np.array(rgb(colour)) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def _luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])
