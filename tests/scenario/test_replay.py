"""What holds for every replay, on every layout."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.caches.layouts import LAYOUTS
from kvviz.errors import ScenarioError
from kvviz.scenario import ops as ops_module
from kvviz.scenario import requests as requests_module
from kvviz.scenario.memory import build, life_of, place
from kvviz.scenario.ops import OpsReplay
from kvviz.scenario.replay import frames, replay
from kvviz.scenario.requests import RequestsReplay
from kvviz.scenario.table import table
from tests.scenario.support import CONTIGUOUS, F0, paged, scenario, told

NAMES = st.sampled_from("abcde")
SIZES = st.integers(1, 90)
OPS = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), NAMES, SIZES),
        st.tuples(st.just("free"), NAMES),
        st.tuples(st.just("extend"), NAMES, SIZES),
        st.tuples(st.just("ask"), SIZES),
        st.tuples(st.just("compact")),
    ).map(list),
    max_size=30,
)
JOBS = st.lists(
    st.fixed_dictionaries(
        {
            "arrive": st.integers(0, 6),
            "prompt": st.integers(1, 60),
            "output": st.integers(1, 20),
            "samples": st.integers(1, 3),
        }
    ),
    min_size=1,
    max_size=6,
)
layouts = pytest.mark.parametrize("kind", sorted(LAYOUTS))


@layouts
@settings(max_examples=25)
@given(operations=OPS)
def test_the_books_balance_after_every_operation(kind, operations):
    """A layout would lose slots, a question would change something, or a refusal would."""
    run = OpsReplay(scenario(capacity=192, layout={"kind": kind}, ops=operations))
    before = None
    for row, columns in run.rows():
        run.layout.check()
        assert row["difference"] == 0
        assert row["used"] + row["free"] == run.whole
        assert 0 <= row["usage"] <= 1
        assert row["largest_hole"] <= row["free"]
        if before is not None and (row["op"][0] == "ask" or not row["ok"]):
            assert np.array_equal(before.owner, columns.owner)
            assert np.array_equal(before.used, columns.used)
        before = columns


@layouts
@settings(max_examples=25)
@given(jobs=JOBS, chunk=st.sampled_from([0, 1, 7]), queue=st.sampled_from(["strict", "skip"]))
def test_every_request_ends(kind, jobs, chunk, queue):
    """A replay would go on for ever, or leave slots behind."""
    file = {
        "capacity": 96,
        "layout": {"kind": kind},
        "scheduler": {"chunk": chunk, "queue": queue},
        "requests": jobs,
    }
    run = RequestsReplay(scenario(**file))
    found = run.report()
    run.layout.check()
    assert {r["state"] for r in found["requests"]} <= {"finished", "turned away"}
    assert (found["deadlock"], found["stopped"]) == (None, "")
    assert run.layout.free == run.whole
    assert found["peak_used"] <= run.whole
    assert found == RequestsReplay(scenario(**file)).report()


@layouts
@pytest.mark.parametrize("written", [1, 15, 16, 17])
def test_writing_nothing_changes_nothing(kind, written):
    """A step in which a sequence only samples would take slots, or copy some."""
    layout = build(scenario(capacity=64, layout={"kind": kind}, ops=[]))
    layout.admit(life_of(0, 40), written)
    layout.append(0, written)
    place(layout)
    layout.take_journal()
    free, held = layout.free, layout.held(0)
    verdict = layout.append(0, 0)
    assert verdict.admitted and verdict.moved == 0
    assert not place(layout)
    assert (layout.free, layout.held(0), layout.written(0)) == (free, held, written)
    assert layout.take_journal() == []
    layout.append(0, 0)
    layout.release(0)
    assert not place(layout)
    assert layout.free == 64
    layout.check()


def test_writing_nothing_copies_no_shared_block():
    """A fork's shared tail would be copied before anybody writes to it."""
    layout = build(scenario(capacity=64, layout=paged(), ops=[]))
    layout.admit(life_of(0, 20), 20)
    layout.append(0, 20)
    layout.fork(0, life_of(1, 20))
    assert layout.append(0, 0).moved == 0
    assert layout.free == 32


def test_a_picture_is_the_memory_that_is_told():
    """The strip would show another moment than the table."""
    file = scenario(capacity=8192, layout=CONTIGUOUS, ops=[*F0, ["ask", 2048], ["compact"]])
    rows = OpsReplay(file).report()["ops"]
    found = list(frames(file, 3, 14))
    assert [int(f.columns.used.sum()) for f in found] == [row["written"] for row in rows[3:14]]
    assert [f.ask for f in found] == [0] * 9 + [2048, 0]
    assert (found[9].label, found[9].note) == ("13 ask 2,048", "fragmented")
    assert found[0].names[0] == "a"


def test_pictures_of_steps_name_the_head_that_waits():
    """The ghost would be missing, or in a step where nobody waits."""
    file = scenario(
        capacity=100,
        layout=paged(1),
        requests=[{"prompt": 60, "output": 3}, {"prompt": 50, "output": 1}],
    )
    found = list(frames(file, 0, 10))
    assert [f.label for f in found] == [f"step {i}" for i in range(1, 6)]
    assert [(f.ask, f.note) for f in found] == [(50, "capacity")] * 3 + [(0, "")] * 2
    assert found[0].names == {0: "request 0", 1: "request 1"}


def test_arrivals_come_before_the_step():
    """A request would be served a step too early or too late."""
    requests = [{"arrive": 0, "prompt": 1, "output": 1}, {"arrive": 5, "prompt": 1, "output": 1}]
    found = told(capacity=16, layout=paged(1), requests=requests)["requests"]
    assert [r["admitted_step"] for r in found] == [1, 6]
    assert [r["finished_step"] for r in found] == [2, 7]


def test_max_running_and_budget_are_kept():
    """Limits that a file sets would be ignored."""
    requests = [{"prompt": 10, "output": 1, "count": 3}]
    one = told(capacity=64, layout=paged(1), scheduler={"max_running": 1}, requests=requests)
    assert [r["finished_step"] for r in one["requests"]] == [2, 3, 4]
    few = told(capacity=64, layout=paged(1), scheduler={"token_budget": 5}, requests=requests)
    assert [r["finished_step"] for r in few["requests"]] == [2, 4, 6]


def test_an_end_without_end_is_told():
    """A replay would stop at its bound without a word."""
    requests = [{"prompt": 5, "output": 50}]
    found = told(capacity=64, layout=paged(1), max_steps=10, requests=requests)
    assert found["steps"] == 10
    assert found["stopped"] == "max_steps 10 is reached; 1 run, 0 wait"
    assert found["requests"][0]["state"] == "running"


def test_work_is_bounded(monkeypatch):
    """A file could keep the server busy for hours."""
    monkeypatch.setattr(requests_module, "MAX_WORK", 40)
    requests = [{"prompt": 5, "output": 50, "count": 2}]
    found = told(capacity=640, layout=paged(1), requests=requests)
    assert found["stopped"].startswith("the work bound is reached at step")
    assert found["steps"] < 30
    monkeypatch.setattr(ops_module, "MAX_WORK", 40)
    with pytest.raises(ScenarioError, match=r"ops\[7\]: the maps of the first 8 operations"):
        told(capacity=8192, layout=CONTIGUOUS, ops=F0)


def test_names_in_a_repeat():
    """{i} would not be the round, or a refusal in it would be lost."""
    ops = [
        ["repeat", 3, [["allocate", "r{i}", 30]]],
        ["free", "r1"],
        ["allocate", "r1", 10],
    ]
    rows = told(capacity=80, layout=CONTIGUOUS, ops=ops)["ops"]
    assert (rows[0]["ok"], rows[0]["refused"], rows[0]["verdict"]) == (False, 1, "capacity")
    assert rows[0]["reason"].startswith("round 2, allocate r2 30: needs 30 of 80 slots; 20 are")
    assert rows[1]["ok"] and rows[2]["start"] == 30


def test_names_are_live_once():
    """A second region would hide the first, which then can't be freed."""
    ops = [["allocate", "a", 5], ["allocate", "a", 6], ["extend", "b", 1], ["free", "a"]]
    rows = told(capacity=80, layout=CONTIGUOUS, ops=ops)["ops"]
    assert [row["ok"] for row in rows] == [True, False, False, True]
    assert rows[1]["reason"] == "'a' is live already; free it first"
    assert rows[2]["reason"] == "nothing live is called 'b'"


def test_a_paged_pool_has_nothing_to_compact():
    """It would end in a traceback, or pretend."""
    (row,) = told(capacity=64, layout=paged(), ops=[["compact"]])["ops"]
    assert (row["ok"], row["reason"]) == (False, "paged has nothing to compact")


def test_the_table_says_what_the_report_says():
    """A figure would be missing, or stand for another."""
    file = scenario(title="T", capacity=8192, layout=CONTIGUOUS, ops=[*F0, ["ask", 2048]])
    told_ = {"title": "T", "story": "", "kind": "ops", "capacity": 8192, "layout": CONTIGUOUS}
    lines = table({**told_, **replay(file).report()}).splitlines()
    assert lines[0] == "T"
    row = next(line for line in lines if line.startswith("ask 2,048"))
    assert row.split() == [
        "ask", "2,048", "no", "fragmented", "4,096", "4", "1,024", "1.000", "0.250", "0", "4,096",
    ]  # fmt: skip
    assert any(
        line.startswith("13. ask 2,048: needs 2,048 of 8,192 slots; 4,096 are free")
        for line in lines
    )
    assert lines[-1] == "at the end: allocations 8, allocations_with_remainder 7"


def test_the_report_is_json():
    """A figure that is no plain value would end in a traceback at the end of a replay."""
    found = told(blocks=4, layout=paged(prefix_sharing=True), ops=[["allocate", "a", 20]])
    assert json.loads(json.dumps(found, allow_nan=False)) == found
