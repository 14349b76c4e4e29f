"""What makes a frame small: it must unpack to what was put in."""

from __future__ import annotations

import base64
import json
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.records import Region
from kvviz.ui.packed import as_json, column, deflated


@pytest.mark.parametrize("content", [b"", b"{}", "✕ ".encode() * 40_000, bytes(range(256)) * 999])
def test_deflated_is_one_zlib_stream(content):
    """A browser takes nothing else."""
    assert zlib.decompress(deflated(content)) == content


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20))
def test_a_column_is_four_planes(numbers):
    """The lowest bytes of all come first."""
    planes = base64.b64decode(column(np.array(numbers, np.int64)))
    expected = [[n >> 8 * plane & 255 for n in numbers] for plane in range(4)]
    assert list(planes) == [byte for plane in expected for byte in plane]


_LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False)


@given(
    st.recursive(
        _LEAVES | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_what_is_read_is_what_was_written(value):
    """The page would show other numbers than the server counted."""
    found = json.loads(as_json({"a": value}))
    assert found == json.loads(json.dumps({"a": _without_infinity(value)}))


def test_what_the_encoder_does_not_know():
    """Half of a surrogate pair, as a file's name may have it, must not end a viewer's frames."""
    assert as_json({3: Region(1, 2), "\ud800": None}) == b'{"3":[1,2],"\\ud800":null}'
    assert as_json({3: Region(1, 2)}) == b'{"3":[1,2]}'
    with pytest.raises(TypeError):
        as_json({"a": object()})


def _without_infinity(value):
    """A browser reads no Infinity: it is null."""
    if isinstance(value, float) and not np.isfinite(value):
        return None
    if isinstance(value, list):
        return [_without_infinity(v) for v in value]
    if isinstance(value, dict):
        return {k: _without_infinity(v) for k, v in value.items()}
    return value
