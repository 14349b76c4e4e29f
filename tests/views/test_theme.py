"""Contrast and distance of the colours, and the formats."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kvviz.caches.layouts import LANES
from kvviz.views.theme import DARK, LIGHT, THEMES, blend, faded, ink, legible, number, rgb

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


# Machado, Oliveira and Fernandes 2009, severity 1, on linear sRGB
VISIONS = {
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
               (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
               (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
               (0.004733, 0.691367, 0.303900)),
}  # fmt: skip


@pytest.mark.parametrize("vision", VISIONS)
@BOTH
def test_hues_stay_apart_for_every_vision(theme, vision):
    """Two requests side by side look like one to one man in twelve."""
    matrix = np.array(VISIONS[vision])
    seen = [oklab_of(np.clip(matrix @ linear(hue), 0, 1)) for hue in (*theme.hues, theme.hole)]
    pairs = itertools.combinations(seen, 2)
    assert min(np.linalg.norm(a - b) for a, b in pairs) >= 0.085


@pytest.mark.parametrize("vision", [None, *VISIONS])
@BOTH
def test_patterns_can_be_seen(theme, vision):
    """Two requests of one hue would look like one."""
    matrix = np.eye(3) if vision is None else np.array(VISIONS[vision])
    for hue in theme.hues:
        a, b = (oklab_of(np.clip(matrix @ linear(c), 0, 1)) for c in (hue, ink(hue)))
        assert np.linalg.norm(a - b) >= 0.13


@pytest.mark.parametrize("vision", VISIONS)
@BOTH
def test_the_two_lanes_stay_apart_for_every_vision(theme, vision):
    """Contiguous and paged would be one line to one man in twelve."""
    matrix = np.array(VISIONS[vision])
    a, b = (
        oklab_of(np.clip(matrix @ linear(theme.lanes[lane]), 0, 1))
        for lane in ("contiguous", "paged")
    )
    assert np.linalg.norm(a - b) >= 0.15


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
    return oklab_of(linear(colour))


def oklab_of(light: np.ndarray) -> np.ndarray:
    """OKLab of linear light."""
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
    return lab @ np.cbrt(lms @ light)


def linear(colour: str) -> np.ndarray:
    """Linear light of an sRGB colour, 0 to 1."""
    c = np.array(rgb(colour)) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def _luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


@BOTH
def test_numbers_on_bars_can_be_read(theme):
    """White on orange, or grey on blue."""
    for name in ("written", "reserved", "internal", "external", "hole"):
        ground = getattr(theme, name)
        assert contrast(legible(ground), ground) >= 4.5, name
