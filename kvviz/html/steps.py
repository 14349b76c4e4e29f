"""What the report's slider goes through: figures and numbers of some recorded steps, packed."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import asdict
from typing import Any

import numpy as np

from kvviz.live.published import Published
from kvviz.live.replayed import Replay
from kvviz.ui.frames import charts, head, maps, tables
from kvviz.views import capacity
from kvviz.views.memory_map import palette
from kvviz.views.theme import DARK, LIGHT, Figure, Theme, rgb

MAX_STEPS = 60
MAP_BYTES = 2_000_000  # of the maps' pictures in one report
CHARTS = ("size", "holes", "unusable", "bytes")


def chosen(replay: Replay) -> list[int]:
    """Indices of up to `MAX_STEPS` recorded steps, evenly spaced, the first and last among them;
    fewer when their maps would take more than `MAP_BYTES`."""
    last = len(replay.recording.steps) - 1
    size = sum(len(map_["png"]) for map_ in _maps(replay.at(last)).values())
    count = int(np.clip(MAP_BYTES // max(size, 1), 2, MAX_STEPS))
    return sorted({int(i) for i in np.linspace(0, last, count).round()})


def step(published: Published) -> dict[str, Any]:
    """Everything that the slider changes, in light colours."""
    words = head(published, LIGHT)
    drawn = charts(published, LIGHT)
    return {
        "step": published.step,
        "verdict": words["verdict"],
        "figures": {name: lane["figures"] for name, lane in words["lanes"].items()},
        "alt": {name: lane["alt"] for name, lane in words["lanes"].items()},
        "numbers": tables(published),
        "maps": _maps(published),
        "charts": {name: drawn[name] for name in CHARTS},
    }


def over_time(replay: Replay) -> Figure:
    """Free and admissible over the whole recording, in light colours."""
    steps = int(replay.recording.steps[-1])
    published = replay.at(len(replay.recording.steps) - 1, window=steps)
    lanes = published.lanes
    return capacity.over_time(
        {n: (v.series.step, v.series.free, v.series.admissible) for n, v in lanes.items()},
        {n: v.refusals for n, v in lanes.items()},
        LIGHT,
        window=steps,
        capacity=published.config.memory.slots,
        moves={n: v.moves for n, v in lanes.items()},
    )


def packed(value: dict[str, Any]) -> str:
    """JSON, deflated, in base64: nothing in it can end a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def dark_colours() -> dict[str, str]:
    """{light colour: the dark one that means the same}, for every colour of a figure."""
    return dict(zip(_colours(LIGHT), _colours(DARK), strict=True))


def dark_palette() -> str:
    """The maps' palette in dark colours, base64: it goes in the place of the light one."""
    colours = palette(DARK, "request")
    return base64.b64encode(bytes(part for colour in colours for part in colour)).decode()


def _colours(theme: Theme) -> list[str]:
    """Of the theme, in one order; as `#rrggbb`, and as the beginning of `rgba(...)`."""
    fields = asdict(theme)
    lanes, hues, _ = fields.pop("lanes"), fields.pop("hues"), fields.pop("name")
    plain = [*fields.values(), *lanes.values(), *hues]
    return [*plain, *("rgba({},{},{},".format(*rgb(colour)) for colour in plain)]


def _maps(published: Published) -> dict[str, Any]:
    """The maps' figures, with the picture's bytes beside them."""
    found = {}
    for name, figure in maps(published, LIGHT, "request").items():
        (image,) = figure["layout"]["images"]
        png = image.pop("source").partition(",")[2]
        found[name.removeprefix("map-")] = {"figure": figure, "png": png}
    return found
