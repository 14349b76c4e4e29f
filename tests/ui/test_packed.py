"""What makes a frame small: it must unpack to what was put in."""

from __future__ import annotations

import base64
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.ui.packed import column, deflated

PICTURE = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 9).decode()


@pytest.mark.parametrize(
    "text",
    ["", "{}", f'{{"a":"{PICTURE}"}}', f'"{PICTURE}","{PICTURE}', PICTURE, "✕ " * 40_000],
    ids=["nothing", "no picture", "one", "two", "only one", "other letters"],
)
def test_deflated_is_one_zlib_stream(text):
    """A browser would stop at the seam between two parts, or find the check sum wrong."""
    assert zlib.decompress(deflated(text)).decode() == text


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20))
def test_a_column_is_four_planes(numbers):
    """The lowest bytes of all come first."""
    planes = base64.b64decode(column(np.array(numbers, np.int64)))
    expected = [[n >> 8 * plane & 255 for n in numbers] for plane in range(4)]
    assert list(planes) == [byte for plane in expected for byte in plane]
