"""Time by address: each column is the pool at its step."""

from __future__ import annotations

import base64
import io

import numpy as np
import plotly.graph_objects as go
from PIL import Image

from kvviz.records import HOLE
from kvviz.views.theme import DARK, LIGHT
from kvviz.views.time_map import ROWS, column, time_map
from tests.views.made import snapshot


def test_a_column_shows_the_pool_from_top_to_bottom() -> None:
    """A request would stand at another address than on the memory map."""
    shot = snapshot([(512, 512, 0), (256, 0, HOLE), (256, 128, 1)])
    codes = column(shot, {0: 3, 1: 5})
    assert len(codes) == ROWS
    expected = [6 + 2 * 3] * 128 + [1] * 64 + [6 + 2 * 5] * 32 + [6 + 2 * 5 + 1] * 32
    assert expected == codes.tolist()


def test_a_small_pool_has_a_row_a_slot() -> None:
    assert len(column(snapshot([(8, 8, 0), (8, 0, HOLE)]), {0: 0})) == 16


def test_the_picture_has_a_column_a_step_and_ends_at_the_steps() -> None:
    """A click would go to another step than the one under the pointer."""
    columns = [np.full(16, code, np.uint8) for code in (1, 6, 8)]
    for theme in (LIGHT, DARK):
        figure = time_map(columns, [10, 20, 30], theme, capacity=16)
        go.Figure(figure)
        image = figure["layout"]["images"][0]
        assert (image["x"], image["sizex"]) == (5.0, 30.0)
        assert figure["layout"]["xaxis"]["range"] == [5.0, 35.0]
        png = base64.b64decode(image["source"].split(",")[1])
        pixels = np.asarray(Image.open(io.BytesIO(png)))
        assert pixels[0].tolist() == [1, 6, 8]
        assert pixels.shape == (16, 3)


def test_one_step_is_a_picture_too() -> None:
    figure = time_map([np.zeros(16, np.uint8)], [0], LIGHT, capacity=16)
    assert figure["layout"]["xaxis"]["range"] == [-0.5, 0.5]
