"""The report: one file, nothing from outside unescaped, nothing from the network."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from dataclasses import replace
from functools import lru_cache
from html import unescape
from typing import Any

import numpy as np
import pytest

from kvviz.html.document import report
from kvviz.html.steps import MAX_STEPS, chosen, dark_colours
from kvviz.live.replayed import Replay
from kvviz.recording.files import unpack
from kvviz.recording.recording import Recording
from kvviz.report import run_rows
from kvviz.views.theme import DARK, LIGHT
from tests.recording.made import recorded

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&"


@lru_cache(maxsize=1)
def document() -> str:
    return report(unpack(recorded(300).data))


def payload(text: str) -> dict[str, Any]:
    packed = re.search(r'id="payload">([^<]*)</script>', text)[1]
    return json.loads(zlib.decompress(base64.b64decode(packed)))


def without_scripts(text: str) -> str:
    return re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_it_is_one_file_of_a_bounded_size() -> None:
    """It could not be sent by mail."""
    size = len(document().encode())
    assert 4_500_000 < size < 8_000_000
    assert document().count(HOSTILE) == 0
    assert "//cdn" not in without_scripts(document())
    assert not re.search(r'(?:src|href)="(?!data:)', without_scripts(document()))


def test_the_policy_allows_these_scripts_and_no_network() -> None:
    """A script from elsewhere would run, or the report's own would not."""
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', document())[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src" not in policy and "http" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", document(), flags=re.DOTALL)
    assert len(scripts) == 2
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_it_says_what_the_recording_says() -> None:
    """Verdict, settings, numbers and events would be those of another run."""
    made = recorded(300)
    text = unescape(without_scripts(document()))
    data = payload(document())
    shown = data["steps"][data["first"]]
    assert shown["verdict"]["tone"] == "alarm"
    assert shown["verdict"]["text"] in text
    assert "<td>512</td><td>8192</td>" in text  # memory.slots and its default
    assert f"of {sum(len(e) for e in made.events.values()):,} events" in text
    for label, *cells in run_rows(unpack(made.data).manifest.report, ("contiguous", "paged")):
        cells = "".join(f"<td>{cell}</td>" for cell in cells)
        assert f'<th scope="row">{label}</th>{cells}' in text
    assert "kvviz 0.1.0 | own settings | seed 1 | step 300 | pool 512 slots" in text


def test_the_slider_goes_through_the_recorded_steps() -> None:
    """A step would show the maps or numbers of another one."""
    made = recorded(300)
    steps = payload(document())["steps"]
    assert len(steps) == MAX_STEPS
    assert (steps[0]["step"], steps[-1]["step"]) == (1, 300)
    for step in (steps[0], steps[30], steps[-1]):
        for lane in ("contiguous", "paged"):
            snapshot = made.snapshots[lane][step["step"] - 1]
            assert step["figures"][lane][0]["value"] == f"{snapshot.free:,}"
            assert base64.b64decode(step["maps"][lane]["png"]).startswith(b"\x89PNG")
            assert f"{snapshot.free:,} free" in step["alt"][lane]
        assert set(step["charts"]) == {"size", "holes", "unusable", "bytes"}


def test_large_maps_make_fewer_steps(monkeypatch) -> None:
    """The file would grow past what it promises."""
    monkeypatch.setattr("kvviz.html.steps.MAP_BYTES", 30_000)
    indices = chosen(Replay(unpack(recorded(300).data)))
    assert 2 <= len(indices) < MAX_STEPS
    assert (indices[0], indices[-1]) == (0, 299)


def test_nothing_from_a_file_becomes_markup() -> None:
    """A recording from a stranger would run a script in the reader's browser."""
    read = unpack(recorded(300).data)
    config = read.config.replace({"preset": HOSTILE, "model": HOSTILE})
    told = {"lanes": {"contiguous": {"admitted": HOSTILE}, "paged": 3}}
    read.manifest = replace(
        read.manifest, config=config, device=HOSTILE, machine=HOSTILE, when=HOSTILE,
        kvviz=HOSTILE, stream_hash=HOSTILE, report=told,
    )  # fmt: skip
    read.config = config
    lane = read._lanes["contiguous"]
    lane.events = tuple(e._replace(kind=HOSTILE, text=HOSTILE) for e in lane.events)
    text = report(read)
    assert "<img" not in without_scripts(text)
    assert "onerror=alert(1)&gt;" in text
    assert text.count("<script") == document().count("<script")


def test_a_report_from_a_file_may_lack_anything() -> None:
    """An older or damaged report would end the whole document."""
    rows = run_rows({"lanes": {"paged": {"admitted": 3, "free": 7}}}, ("contiguous", "paged"))
    assert rows[0] == ("admitted", "n/a", "3")
    assert {cell for _, *cells in rows[1:] for cell in cells} == {"n/a"}


def test_every_light_colour_has_one_dark_one() -> None:
    """In the dark two meanings would share the colour of one."""
    pairs = dark_colours()
    for name in ("paper", "text", "quiet", "grid", "hole", "stuck", "written", "alarm"):
        assert pairs[getattr(LIGHT, name)] == getattr(DARK, name)
    for lane, colour in LIGHT.lanes.items():
        assert pairs[colour] == DARK.lanes[lane]
    assert pairs["rgba(194,65,12,"] == "rgba(251,146,60,"


@pytest.mark.parametrize("steps", [1, 2])
def test_a_short_recording(steps: int) -> None:
    data = payload(report(unpack(recorded(steps).data)))
    assert [step["step"] for step in data["steps"]] == list(range(1, steps + 1))


def test_a_publication_is_that_of_its_step() -> None:
    """The charts over time would look into the future."""
    made = recorded(300)
    recording: Recording = unpack(made.data)
    found = Replay(recording).at(149, window=100)
    assert found.step == 150
    for lane, view in found.lanes.items():
        assert view.series.step.tolist() == list(range(50, 150))
        refused = [e for e in made.events[lane] if e.kind == "refuse" and 50 <= e.step < 150]
        assert list(view.refusals) == refused[::-1]
        assert np.array_equal(view.snapshot.columns.owner, made.snapshots[lane][149].columns.owner)


def test_a_request_keeps_its_colour() -> None:
    replay = Replay(unpack(recorded(300).data))
    late, early = replay.at(299), replay.at(10)
    again = replay.at(299)
    assert {i: again.hues[i] for i in late.hues} == late.hues
    assert set(early.hues) <= set(again.hues)
