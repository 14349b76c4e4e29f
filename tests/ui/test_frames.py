"""Frames: what the browser gets, and what it is spared."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kvviz import __version__
from kvviz.live.published import Published
from kvviz.live.runner import FLAT_OUT, LiveRunner
from kvviz.ui.frames import PARTS, FrameBuilder
from kvviz.views.memory_map import Grid
from kvviz.views.numbers import GROUPS, HEADLINE
from kvviz.views.theme import THEMES
from kvviz.workloads.presets import preset_config
from tests.live.support import Builder, dry, publish, until

FIGURES = {"map-contiguous", "map-paged", "time", "size", "holes", "bytes", "unusable"}
NUMBER = {
    "name", "value", "formula", "numerator", "denominator", "source", "note", "kind", "group",
}  # fmt: skip
KEYS = {
    "version", "step", "state", "message", "stopped", "theme", "verdict", "lanes", "status",
    "legend", "stamp", "figures", "hover", "numbers", "past", "said", "snapshots_memory",
}  # fmt: skip
LEGEND = {
    "written", "reserved", "internal", "external", "usable", "hole", "stuck", "alarm",
    "contiguous", "paged",
}  # fmt: skip
LIMIT = 60_000


def defaults(changes: dict[str, Any] | None = None):
    return preset_config("chat-and-documents").replace({"dry": True, **(changes or {})})


@pytest.fixture(scope="module")
def published() -> Published:
    return publish(defaults(), 400)


def test_a_frame_has_what_the_browser_reads(published):
    """live.js would stop with an error and show nothing."""
    frame = read(FrameBuilder().build(published))
    assert set(frame) == KEYS
    assert set(frame["figures"]) == FIGURES
    assert {"tone", "text", "detail"} == set(frame["verdict"])
    assert set(frame["legend"]) >= LEGEND
    assert set(frame["said"]) == {"time", "size", "holes", "unusable", "bytes"}
    assert frame["status"]
    assert all({"label", "tone", "help"} == set(chip) for chip in frame["status"])
    assert tuple(frame[k] for k in ("version", "step", "state", "message")) == (
        1,
        400,
        "running",
        "",
    )
    assert {"contiguous", "paged"} == set(frame["lanes"]) == set(frame["hover"])
    for lane in frame["lanes"].values():
        assert {"colour", "what", "key", "alt", "figures"} == set(lane)
        assert all(set(figure) == NUMBER for figure in lane["figures"])
    assert set(frame["numbers"]) == {group for group in GROUPS if group != HEADLINE}
    for rows in frame["numbers"].values():
        for cells in rows.values():
            assert list(cells) == ["contiguous", "paged"]
            assert all(set(number) == NUMBER for number in cells.values())


def test_a_frame_of_a_running_thread():
    """What a runner really publishes would not fit into a frame."""
    runner = LiveRunner(dry(), Builder(), speed=FLAT_OUT)
    until(lambda: runner.latest().step > 100)
    frame = read(FrameBuilder().build(runner.latest()))
    runner.close()
    runner.join(15)
    assert set(frame["figures"]) == FIGURES


def test_before_the_first_picture_there_is_a_frame():
    """While the model loads, or when it can't be loaded, the viewer would get nothing."""
    config = defaults()
    frame = read(FrameBuilder().build(Published(1, 0, "failed", "no model", config, "")))
    assert set(frame) == KEYS
    assert (frame["state"], frame["message"]) == ("failed", "no model")
    assert (frame["figures"], frame["hover"], frame["verdict"]) == ({}, {}, None)


def test_what_did_not_change_is_not_sent_again(published):
    """Each frame would weigh and cost several times as much."""
    builder = FrameBuilder()
    builder.build(published)
    assert read(builder.build(replace(published, version=2)))["figures"] == {}
    paused = read(builder.build(replace(published, version=3, state="paused")))
    assert paused["figures"] == {}
    assert paused["state"] == "paused"


def test_what_changed_is_sent(published, monkeypatch):
    """The viewer would look at an old map."""
    monkeypatch.setattr("kvviz.ui.frames.CHART_SECONDS", 3600.0)  # whatever the machine's pace
    builder = FrameBuilder()
    builder.build(published)
    later = publish(defaults(), 401, version=2)
    frame = read(builder.build(later))
    assert {"map-contiguous", "map-paged"} <= set(frame["figures"])
    forced = read(builder.build(replace(later, version=3, state="paused")))
    assert {"time", "size", "holes", "bytes", "unusable"} >= set(forced["figures"])
    assert "time" in forced["figures"]


def test_a_running_engine_brings_one_part_a_frame(monkeypatch):
    """One frame in five would cost twice the others; or, at a step a second, the charts and the
    numbers would show older steps than the map."""
    monkeypatch.setattr("kvviz.ui.frames._HOVER_ROWS", 0)
    now = 0.0
    builder = FrameBuilder(lambda: now)

    def parts(step: int) -> set[str]:
        frame = read(builder.build(publish(defaults(), step, version=step)))
        brought = {"charts": "time" in frame["figures"], "numbers": frame["numbers"],
                   "hover": frame["hover"]}  # fmt: skip
        return {name for name, found in brought.items() if found}

    found = []
    for step in range(12):
        now = step / 10
        found.append(parts(400 + step))
    assert found[0] == set(PARTS)
    assert all(len(brought) <= 1 for brought in found[1:])
    for part in PARTS:
        assert [part in brought for brought in found[5:]].count(True) in (1, 2)
    now += 1.0
    assert parts(420) == set(PARTS)


def test_tables_come_now_and_then_and_agree_with_the_maps(published, monkeypatch):
    """They would weigh on every frame, or stay behind the picture once a run is paused."""
    monkeypatch.setattr("kvviz.ui.frames.CHART_SECONDS", 3600.0)
    builder = FrameBuilder()
    builder.build(published)
    assert read(builder.build(replace(published, version=2)))["numbers"] is None
    later = publish(defaults(), 401, version=3, state="paused")
    sent = read(builder.build(later))["numbers"]["Where the slots are"]["slot usage"]
    for name, lane in later.lanes.items():
        written = int(lane.snapshot.seq_used.sum())
        assert sent[name]["numerator"] == f"slots written: {written:,}"


def test_quick_steps_of_a_paused_run_end_with_true_charts(published):
    """After two quick clicks on Step the charts would stay a step behind the maps, for good."""
    builder = FrameBuilder()
    builder.build(replace(published, state="paused"))
    later = publish(defaults(), 401, version=2, state="paused")
    assert {"map-paged", "time"} <= set(read(builder.build(later))["figures"])


def test_a_viewer_gets_all_figures_whatever_another_has(published):
    """A second tab would stay empty."""
    FrameBuilder().build(published)
    assert set(read(FrameBuilder().build(published))["figures"]) == FIGURES


def test_another_theme_sends_all_again(published):
    """Half of the page would stay light."""
    builder = FrameBuilder()
    builder.build(published)
    builder.theme = "dark"
    frame = read(builder.build(replace(published, version=2)))
    assert set(frame["figures"]) == FIGURES
    assert frame["theme"] == "dark"
    assert THEMES["dark"].lanes["paged"] == frame["lanes"]["paged"]["colour"]


@pytest.mark.parametrize("colour_by", ["state", "age"])
def test_another_colouring_sends_the_maps_again(published, colour_by):
    """The select box would do nothing until the next step."""
    builder = FrameBuilder()
    builder.build(published)
    builder.colour_by = colour_by
    frame = read(builder.build(replace(published, version=2)))
    assert {"map-contiguous", "map-paged"} == set(frame["figures"])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"paged.block_size": 1},
        {"memory.slots": 65536},
        {"memory.slots": 65536, "mix.rate": 1.5},
        pytest.param(
            {"memory.slots": 65536, "paged.block_size": 1},
        ),
    ],
    ids=["defaults", "blocks of 1", "64k", "64k busy", "64k blocks of 1"],
)
def test_a_frame_is_small(changes):
    """Ten frames a second would fill a slow line."""
    builder = FrameBuilder()
    first = builder.build(publish(defaults(changes), 400))
    second = builder.build(publish(defaults(changes), 401, version=2, state="paused"))
    assert len(first) < LIMIT
    assert len(second) < LIMIT


@pytest.mark.parametrize("block", [1, 16])
def test_hover_columns_are_those_of_the_snapshot(block):
    """The pointer would name another request than the one under it."""
    published = publish(defaults({"paged.block_size": block}), 300)
    frame = read(FrameBuilder().build(published))
    for name, lane in published.lanes.items():
        hover, shot = frame["hover"][name], lane.snapshot
        assert Grid.of(shot.capacity).columns == hover["columns"]
        assert shot.grain == hover["grain"]
        sent = {name: unpacked(hover[name]) for name in ("size", "used", "owner")}
        c = shot.columns  # many small blocks come as runs: compare slot by slot
        np.testing.assert_array_equal(
            np.repeat(c.owner, c.size), np.repeat(sent["owner"], sent["size"])
        )
        full = sent["used"] == sent["size"]
        np.testing.assert_array_equal(
            np.repeat(c.used == c.size, c.size), np.repeat(full, sent["size"])
        )
        assert int(sent["size"].sum()) == shot.capacity
        assert int(c.used.sum()) == int(sent["used"].sum())
        rows = zip(
            shot.seq_id, shot.seq_prompt, shot.seq_used, shot.seq_held, shot.seq_life,
            shot.seq_since, strict=True,
        )  # fmt: skip
        assert {str(i): [int(v) for v in row] for i, *row in rows} == hover["requests"]


def test_the_stamp_is_enough_to_make_the_picture_again():
    """A screenshot could not be reproduced."""
    config = defaults({"seed": 77, "contiguous.fit": "best", "paged.block_size": 32})
    published = publish(config, 1200)
    stamp = read(FrameBuilder().build(published))["stamp"]
    for part in (
        f"kvviz {__version__}",
        "chat-and-documents",
        "seed 77",
        "step 1,200",
        "pool 8,192 slots",
        "best fit",
        "blocks of 32",
        "CPU",
        published.stream_hash,
    ):
        assert part in stamp


def test_status_tells_what_was_checked(published):
    """A dry run would look real, or unequal outputs good."""
    chips = _chips(published)
    assert chips["dry"] == "warn"
    real = replace(published, config=published.config.replace({"dry": False}))
    assert _chips(real)["real tensors"] == "good"
    assert _chips(replace(published, compared=5, equal=5))["outputs equal 5/5"] == "good"
    assert _chips(replace(published, compared=5, equal=4))["outputs equal 4/5"] == "bad"
    lanes = {n: replace(v, checks_made=3, checked_step=64) for n, v in published.lanes.items()}
    assert _chips(replace(published, lanes=lanes))["map = tensors at step 64"] == "good"
    lanes["paged"] = replace(lanes["paged"], checks_failed=1)
    failed = _chips(replace(published, lanes=lanes))
    assert failed["map differs from the tensors in 1 of 6 checks"] == "bad"


def _chips(published: Published) -> dict[str, str]:
    return {c["label"]: c["tone"] for c in read(FrameBuilder().build(published))["status"]}


def read(frame: bytes) -> dict[str, Any]:
    return json.loads(zlib.decompress(frame))


def unpacked(planes: str) -> np.ndarray:
    """A column as `slots.js` reads it."""
    low, *higher = np.frombuffer(base64.b64decode(planes), np.uint8).reshape(4, -1).astype(np.int32)
    return low | sum(plane << 8 * i for i, plane in enumerate(higher, 1))


def test_a_light_frame_leaves_the_charts_to_a_later_one(published):
    """Scrubbing would wait for charts that nobody looks at, or never get them."""
    builder = FrameBuilder()
    past = replace(published, state="paused", looking=True)
    assert {"map-contiguous", "map-paged"} == set(read(builder.build(past, light=True))["figures"])
    later = read(builder.build(past))
    assert FIGURES - {"map-contiguous", "map-paged"} == set(later["figures"])
    assert later["numbers"]
