"""Pixels: every look of a cell, pixel by pixel, and a picture that any reader opens."""

from __future__ import annotations

import base64
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from kvviz.views.pixels import FIRST, HOLE, HUES, INK, LINE, SHARED, paint, png


def painted(codes: np.ndarray, scale: int, starts: np.ndarray) -> np.ndarray:
    """By the rules, one pixel at a time."""
    height, width = (side * scale for side in codes.shape)
    pixels = np.empty((height, width), np.uint8)
    for y in range(height):
        for x in range(width):
            at = y // scale, x // scale
            pixels[y, x] = _look(int(codes[at]), x, y)
            if starts[at] and x % scale < -(-scale // 4):
                pixels[y, x] = LINE
    return pixels


def _look(code: int, x: int, y: int) -> int:
    shared, code = code >= SHARED, code % SHARED
    if shared and x % 6 < 2 and y % 6 < 2:
        return LINE
    if code < FIRST:
        return code
    look, reserved = divmod(code - FIRST, 2)
    if reserved and (x + y) % 8 < 3:
        return HOLE
    pattern, hue = divmod(look, HUES)
    rows, columns, checks = y % 8 < 3, x % 8 < 3, (x // 4 + y // 4) % 2 == 0
    marked = (False, rows, columns, rows or columns, checks)[pattern]
    return INK + 2 * hue + reserved if marked else code


@settings(max_examples=25)
@given(
    st.sampled_from([1, 2, 4, 8, 16, 32]),
    st.integers(1, 5),
    st.integers(1, 9),
    st.randoms(use_true_random=False),
)
def test_paint_is_the_rules_pixel_by_pixel(scale, rows, columns, random):
    """A tile would be taken at the wrong place within eight, or a line be as wide as its cell."""
    plain = [*range(FIRST), *range(FIRST, INK)]
    shared = [SHARED + code for code in range(FIRST, INK, 2)]
    codes = np.array(random.choices(plain + shared, k=rows * columns), np.uint8)
    starts = np.array(random.choices([True, False], k=rows * columns))
    codes, starts = codes.reshape(rows, columns), starts.reshape(rows, columns)
    found = paint(codes, scale, starts)
    np.testing.assert_array_equal(found, painted(codes, scale, starts))
    np.testing.assert_array_equal(paint(codes, scale), painted(codes, scale, np.zeros_like(starts)))


@pytest.mark.parametrize("height", [1, 7])
def test_png_is_read_as_it_was_written(height):
    """Lines that repeat are told as differences: a reader would show them shifted, or black."""
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 3, (height, 5)).astype(np.uint8).repeat(3, axis=0)
    colours = [(10, 20, 30), (255, 0, 7), (1, 2, 3)]
    source = png(pixels, colours)
    image = Image.open(io.BytesIO(base64.b64decode(source.removeprefix("data:image/png;base64,"))))
    assert (image.mode, image.size) == ("P", (5, 3 * height))
    np.testing.assert_array_equal(np.asarray(image), pixels)
    np.testing.assert_array_equal(np.asarray(image.convert("RGB")), np.array(colours)[pixels])
