"""Free and admissible: over time and over the size of the request."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.metrics import bound_fit, holes, how_many_fit
from kvviz.records import CAPACITY, FRAGMENTED, HOLE, NEVER, QUEUED, REFUSALS, Event
from kvviz.views.capacity import over_size, over_time
from kvviz.views.theme import DARK, LIGHT, SYMBOLS
from tests.views.made import shots_after, snapshot

STEP = np.arange(100, 105)
FREE = np.array([64, 50, 30, 40, 60])
LARGEST = np.array([64, 20, 30, 10, 60])
THEMES = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda t: t.name)


def test_traces_hold_the_numbers_of_the_series():
    """The chart would show another run."""
    figure = _over_time({"contiguous": (STEP, FREE, LARGEST), "paged": (STEP, FREE, FREE)})
    traces = {trace["name"]: trace for trace in figure["data"]}
    assert {
        "contiguous: free": FREE.tolist(),
        "contiguous: admissible": LARGEST.tolist(),
        "paged: free = admissible": FREE.tolist(),
    } == {name: trace["y"] for name, trace in traces.items()}
    assert all(trace["x"] == (STEP + 1).tolist() for trace in traces.values())


@THEMES
def test_the_gap_is_filled_only_where_there_is_one(theme):
    """Memory that no request can use would not stand out, or a lane without it would be shaded."""
    lanes = {"contiguous": (STEP, FREE, LARGEST), "paged": (STEP, FREE, FREE)}
    figure = _over_time(lanes, theme=theme)
    fills = {trace["name"]: trace["fill"] for trace in figure["data"]}
    assert fills == {
        "contiguous: free": "none",
        "contiguous: admissible": "tonexty",
        "paged: free = admissible": "none",
    }
    names = [trace["name"] for trace in figure["data"]]
    assert names.index("contiguous: admissible") == names.index("contiguous: free") + 1
    assert {theme.lanes["contiguous"], theme.lanes["paged"]} == {
        trace["line"]["color"] for trace in figure["data"]
    }


def test_marks_lie_at_what_was_asked_for():
    """A mark inside the gap would not mean a false refusal."""
    events = {
        "contiguous": [
            _refused(104, 9, FRAGMENTED, 35),
            _refused(102, 8, CAPACITY, 90),
            _refused(102, 7, QUEUED, 3),
            _refused(101, 6, FRAGMENTED, 40),
        ],
        "paged": [_refused(103, 9, NEVER, 500)],
    }
    lanes = {"contiguous": (STEP, FREE, LARGEST), "paged": (STEP, FREE, FREE)}
    marks = {
        trace["name"]: trace
        for trace in _over_time(lanes, events)["data"]
        if trace["mode"] == "markers"
    }
    assert {name: (trace["x"], trace["y"]) for name, trace in marks.items()} == {
        "contiguous: fragmented": ([105, 102], [35, 40]),
        "contiguous: capacity": ([103], [90]),
        "contiguous: queued": ([103], [3]),
        "paged: never": ([104], [500]),
    }
    for name, trace in marks.items():
        lane, verdict = name.split(": ")
        assert SYMBOLS[verdict] == trace["marker"]["symbol"].removesuffix("-open")
        assert (lane == "paged") == trace["marker"]["symbol"].endswith("-open")
        assert LIGHT.lanes[lane] == trace["marker"]["color"]


def test_each_verdict_has_a_symbol_of_its_own():
    """Two kinds of refusal would look the same."""
    assert set(REFUSALS) == set(SYMBOLS)
    assert len(REFUSALS) == len(set(SYMBOLS.values()))


def test_the_newest_refusals_are_marked():
    """In a busy window the marks would end long before now."""
    events = [_refused(step, step, FRAGMENTED, 9) for step in range(500, 0, -1)]
    (trace,) = [
        t
        for t in _over_time({"contiguous": (STEP, FREE, FREE)}, {"contiguous": events})["data"]
        if t["mode"] == "markers"
    ]
    assert max(trace["x"]) == 501
    assert len(trace["x"]) >= 100


@pytest.mark.parametrize("count", [1, 299, 300, 599, 600, 601, 1200])
def test_long_series_are_thinned_to_true_points(count):
    """Thinning would invent numbers, or the frame would grow."""
    step = np.arange(count)
    (trace,) = _over_time({"paged": (step, step * 3 + 1, step * 3 + 1)})["data"]
    assert [3 * (x - 1) + 1 for x in trace["x"]] == trace["y"]
    assert 0 < len(trace["x"]) <= 600


@pytest.mark.parametrize(
    "count",
    [
        1,
        300,
        599,
        pytest.param(
            600,
        ),
        601,
    ],
)
def test_the_newest_step_is_always_drawn(count):
    """The end of the line would lag behind the gauges."""
    step = np.arange(count)
    (trace,) = _over_time({"paged": (step, step, step)})["data"]
    assert count == trace["x"][-1]


def test_no_steps_yet():
    """The first frame of a run would fail."""
    none = np.zeros(0, np.int64)
    figure = _over_time({"contiguous": (none, none, none), "paged": (none, none, none)})
    assert [trace["y"] for trace in figure["data"]] == [[], []]


def test_everything_lies_in_the_frame():
    """Refusals of large requests would be cut off."""
    events = {"contiguous": [_refused(103, 1, CAPACITY, 90)]}
    layout = _over_time({"contiguous": (STEP, FREE, LARGEST)}, events)["layout"]
    assert layout["yaxis"]["range"][1] >= 90
    low, high = layout["xaxis"]["range"]
    assert low <= STEP[0] and STEP[-1] <= high


@pytest.mark.parametrize("preset", ["chat-and-documents", "control", "grow-in-place"])
def test_over_size_counts_what_fits(preset):
    """The chart would promise room that is not there."""
    shots = shots_after(preset, 300)
    figure = over_size(shots, LIGHT, largest=2048, ask=None)
    assert [t["name"] for t in figure["data"]] == ["contiguous", "contiguous if compacted", "paged"]
    for trace in figure["data"]:
        name, _, bound = trace["name"].partition(" if ")
        shot, sizes = shots[name], np.array(trace["x"])
        free = shot.free
        expected = (
            bound_fit(free, sizes) if bound else how_many_fit(holes(shot), shot.block, free, sizes)
        )
        assert expected.tolist() == trace["customdata"]
        assert [max(n, 0.5) for n in expected.tolist()] == trace["y"]
        assert ("dash" if bound else "solid") == trace["line"]["dash"]
        assert sizes[0] == 16 and sizes[-1] == 2048


def test_blocks_of_one_slot_need_no_single_hole():
    """A paged pool with blocks of 1 would be shown as if it could fragment."""
    paged = shots_after("chat-and-documents", 300, ("paged.block_size", 1))["paged"]
    assert len(holes(paged)) > 4
    figure = over_size({"paged": paged}, LIGHT, largest=2048, ask=None)
    trace = figure["data"][0]
    assert (paged.free // np.array(trace["x"])).tolist() == trace["customdata"]
    assert [trace["name"] for trace in figure["data"]] == ["paged"]


@THEMES
def test_the_next_request_is_marked_at_its_size(theme):
    """One could not read off whether it fits."""
    shots = {"contiguous": snapshot([(40, 0, HOLE), (24, 20, 1)])}
    assert over_size(shots, theme, largest=64, ask=None)["layout"]["shapes"] == []
    (line,) = over_size(shots, theme, largest=64, ask=33)["layout"]["shapes"]
    assert (33, 33, theme.alarm) == (line["x0"], line["x1"], line["line"]["color"])


def _over_time(lanes, refusals=None, theme=LIGHT):
    return over_time(lanes, refusals or {}, theme, window=600, capacity=128)


def _refused(step: int, request: int, verdict: str, need: int) -> Event:
    return Event(step, "refuse", request, verdict, need, 60, 20)
