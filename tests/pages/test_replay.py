"""The replay page, run by Streamlit's test harness."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from kvviz.replay.job import ReplayJob


@pytest.fixture
def page(root, monkeypatch) -> AppTest:
    monkeypatch.chdir(root)
    return AppTest.from_file(str(root / "pages/replay.py"), default_timeout=60).run()


def finished(page: AppTest) -> AppTest:
    """The page once its job is done, and its map."""
    page.session_state["replay"].join(60)
    page.run()
    if "map_job" in page.session_state:
        page.session_state["map_job"].join(60)
        page.run()
    return page


def asked(page: AppTest, requests: int = 60) -> AppTest:
    page.number_input(key="requests").set_value(requests)
    page.number_input(key="memory").set_value(0.5)
    return page.button(key="go").click().run()


def test_it_waits_to_be_asked(page):
    """A replay would start with a visit."""
    assert list(page.exception) == []
    assert "replay" not in page.session_state
    assert "Nothing is replayed yet" in page.markdown[0].value
    assert page.button(key="begin").label == "Replay 5,000 requests"


def test_results(page):
    """The page would show no numbers, or those of another replay."""
    page = finished(asked(page))
    assert list(page.exception) == [] and list(page.error) == []
    report = page.session_state["replay"].report
    assert list(report["lanes"]) == ["contiguous", "paged"]
    (table,) = page.dataframe
    rows = table.value.set_index(table.value.columns[0])
    assert rows.loc["finished", "paged"] == "60"
    assert page.caption[0].value.startswith("**Dry**: memory only")
    assert "steps of 30 ms are assumed" in page.caption[0].value
    assert len(page.get("plotly_chart")) == 6
    assert {"Series (CSV)", "Series (Parquet)"} <= {b.label for b in page.get("download_button")}


def test_another_moment(page):
    """The map would stay where it was."""
    page = finished(asked(page))
    page.slider(key="map_step_contiguous").set_value(5).run()
    page.session_state["map_job"].join(60)
    page.run()
    assert page.session_state["map_job"].snapshot.step == 5
    assert list(page.exception) == []


def test_a_preset_and_lanes_of_their_own(page):
    """A lane could not be given settings."""
    page.radio(key="kind").set_value("A preset").run()
    page.selectbox(key="own").set_value("bursts")
    page.text_area(key="own_lanes").set_value("best=contiguous,contiguous.fit=best")
    page = finished(asked(page))
    report = page.session_state["replay"].report
    assert list(report["lanes"]) == ["contiguous", "paged", "best"]
    assert report["lanes"]["best"]["config"]["contiguous"]["fit"] == "best"
    assert report["lanes"]["best"]["slots"] == 8192


@pytest.mark.parametrize(
    ("kind", "key", "value", "text"),
    [
        ("text_area", "own_lanes", "a=nope", "there is no 'nope'"),
        ("multiselect", "lanes", [], "No lane is chosen"),
        ("radio", "kind", "A file of requests", "No file yet"),
    ],
)
def test_what_a_person_can_fix(page, kind, key, value, text):
    """It would end in a traceback."""
    getattr(page, kind)(key=key).set_value(value).run()
    page = asked(page)
    assert list(page.exception) == []
    assert text in page.error[0].value


def test_cancel(page):
    """A long replay could not be stopped."""
    page = finished(asked(page))
    job: ReplayJob = page.session_state["replay"]
    job.cancelled, job.report = True, None
    assert page.run().info[0].value.startswith("Cancelled")
