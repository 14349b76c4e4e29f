"""The sweep's page and the paper's, run by Streamlit's test harness."""

from __future__ import annotations

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import kvviz.sweeps.sweep
import kvviz.ui.sweep
from kvviz.studies import paper
from kvviz.sweeps.job import Job
from kvviz.sweeps.pool import Pool
from kvviz.ui.jobs import Desk


@pytest.fixture
def desks(monkeypatch) -> list[Desk]:
    """Every session's."""
    made: list[Desk] = []

    def make() -> Desk:
        made.append(Desk())
        return made[-1]

    monkeypatch.setattr("kvviz.ui.jobs.Desk", make)
    return made


@pytest.fixture
def visit(root, monkeypatch, tmp_path, desks):
    """`visit("sweep", steps="200")`; cells run in this process and are kept in a new folder."""
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(kvviz.ui.sweep, "Pool", lambda: Pool(jobs=1))
    st.cache_resource.clear()

    def open_page(name: str, **address: str) -> AppTest:
        page = AppTest.from_file(str(root / "pages" / f"{name}.py"), default_timeout=60)
        for key, value in address.items():
            page.query_params[key] = value
        return page.run()

    yield open_page
    for job in jobs(desks):
        job.cancel()
        job.join(60)
    st.cache_resource.clear()


def jobs(desks: list[Desk]) -> list[Job]:
    return [job for desk in desks for job in desk.jobs.values()]


@pytest.fixture
def press(desks):
    """`press(page, "Run")`: press, wait for the job's end, and run the page again."""

    def pressed(page: AppTest, label: str) -> AppTest:
        next(b for b in page.button if b.label == label).click().run()
        for job in jobs(desks):
            job.join(60)
        return page.run()

    return pressed


def test_a_worker_that_dies_is_told(visit, press, monkeypatch):
    """The page would show a traceback, or a line that lacks a point and does not say so."""
    real = kvviz.sweeps.sweep.run_tasks
    why = "Its worker died, each time that it was tried."

    def one_dies(function, tasks, pool, **more):
        first, *others = tasks
        return {**real(function, {key: tasks[key] for key in others}, pool, **more), first: why}

    monkeypatch.setattr("kvviz.sweeps.sweep.run_tasks", one_dies)
    page = press(visit("sweep", steps="100", xs="8,16,32", seeds="1"), "Run")
    assert list(page.exception) == []
    assert [error.value for error in page.error] == [why]
    assert [w.value for w in page.warning] == ["1 of 3 cells are missing; press Run to go on."]
    monkeypatch.setattr("kvviz.sweeps.sweep.run_tasks", real)
    page = press(page, "Run")
    assert quiet(page) and list(page.warning) == []


def quiet(page: AppTest) -> bool:
    return list(page.exception) == [] and list(page.error) == []


def test_a_sweep_runs_and_is_shown(visit, press):
    """The page would stay empty."""
    page = visit("sweep", xs="8,64", seeds="1", steps="100")
    assert quiet(page) and "Press Run" in page.markdown[1].value
    assert "2 cells" in page.caption[0].value
    page = press(page, "Run")
    assert quiet(page) and not page.info
    assert "2 cells run now, 0 read" in page.caption[1].value
    page = press(page, "Run")
    assert "0 cells run now, 2 read" in page.caption[1].value


def test_two_settings(visit, press):
    """The heat maps would fail."""
    page = visit("sweep", y="contiguous.fit", ys="first,best", xs="8", seeds="1-2", steps="100")
    page = press(page, "Run")
    assert quiet(page)
    assert "paged.block_size × contiguous.fit" in page.caption[1].value


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ({"xs": "0"}, "1 to 256"),
        ({"xs": ""}, "is no axis"),
        ({"y": "paged.block_size", "ys": "8"}, "axis twice"),
        ({"seeds": "x"}, "numbers like"),
        ({"lanes": "none"}, "there is no 'none'"),
        ({"set": "memory.slots"}, "is no setting"),
    ],
    ids=str,
)
def test_a_bad_grid_is_told_at_the_controls(visit, address, said):
    """The page would end in a traceback, or run something else."""
    page = visit("sweep", **address)
    assert list(page.exception) == []
    assert said in page.error[0].value
    assert next(b for b in page.button if b.label == "Run").disabled


def test_the_paper_page(visit, press, monkeypatch):
    """The page would show nothing, or claim what was not measured."""
    page = visit("paper", seeds="1", steps="2000")
    assert quiet(page) and "Published figures only" in page.info[0].value
    assert not page.dataframe
    monkeypatch.setattr(paper, "measure", fake_measure)
    monkeypatch.setattr(paper, "run_tasks", in_this_process(paper.run_tasks))
    page = press(page, "Measure")
    assert quiet(page) and not page.info
    (frame,) = page.dataframe
    assert list(frame.value["measured"][:5]) == [25.0, 25.0, 25.0, 25.0, 9.0]
    assert any("More than 5 points" in m.value for m in page.markdown)


def fake_measure(run: paper.Run) -> dict[str, float]:
    return dict.fromkeys(paper.PARTS, 25.0) | {
        "rounding": 1.0, "batched": 9.0, "finished": 10, "preempted": 0.0
    }  # fmt: skip


def in_this_process(run_tasks):
    def run(function, tasks, pool, **more):
        return run_tasks(function, tasks, Pool(jobs=1), **more)

    return run
