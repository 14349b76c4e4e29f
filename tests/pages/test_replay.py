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
    if any(control.key == "memory" for control in page.number_input):  # a preset has its own pool
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
    assert {b.label for b in page.get("download_button")} == {
        "Numbers (CSV)", "Numbers (Parquet)", "Series (CSV)", "Series (Parquet)",
    }  # fmt: skip


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
        ("radio", "kind", "A file", "No file yet"),
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


CSV = b"arrival,prompt_tokens,output_tokens\n" + b"".join(
    b"%d,%d,%d\n" % (10 * i, 100, 20 if i != 3 else -1) for i in range(8)
)


def test_a_file(page):
    """An upload would not be replayed, or what was done to it would not be said."""
    page.radio(key="kind").set_value("A file").run()
    page.file_uploader(key="file").upload("requests.csv", CSV, "text/csv").run()
    page.number_input(key="cap").set_value(5.0)
    page = finished(asked(page))
    assert list(page.exception) == []
    report = page.session_state["replay"].report
    assert report["trace"]["rows"] == 7 and report["lanes"]["paged"]["finished"] == 7
    assert "6 idle gaps were cut to 5 s" in page.caption[0].value
    assert page.warning[0].value.startswith("1 row was set aside")
    assert page.get("download_button")[0].label == "Rows set aside (CSV)"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "empty"),
        (b"\x00\x01\x02\xff" * 40, ""),
        (b"<html><body>no requests</body></html>", ""),
        (b"prompt,answer\n1,2\n", "no column with"),
    ],
)
def test_a_file_of_something_else(page, content, text):
    """A wrong file would end in a traceback, or in nothing."""
    page.radio(key="kind").set_value("A file").run()
    page.file_uploader(key="file").upload("x.csv", content, "text/csv").run()
    page = asked(page)
    assert list(page.exception) == []
    (error,) = page.error
    assert text in error.value
    assert "replay" not in page.session_state


def test_a_gpu(page):
    """The pool would not be what the GPU has left beside the weights."""
    page.radio(key="pool").set_value("A GPU").run()
    page.selectbox(key="gpu").set_value("L4")
    page = finished(asked(page, 5))
    # 0.9 x 22.49 GiB, less 8.03e9 x 2 bytes, less the activations of 8,192 tokens
    words = page.caption[0].value
    assert "14.96 GiB of weights" in words and "slots of Llama-3.1-8B" in words
    report = page.session_state["replay"].report
    assert f"{report['lanes']['paged']['slots']:,} slots of Llama" in words
    page.selectbox(key="model").set_value("Llama-3.1-70B")
    page = asked(page, 5)
    assert list(page.exception) == []
    assert page.error[0].value.startswith("no room for a KV pool")


def test_the_address(root, monkeypatch):
    """A link would lead to another replay."""
    monkeypatch.chdir(root)
    page = AppTest.from_file(str(root / "pages/replay.py"), default_timeout=60)
    page.query_params["mix"] = "azure-code-2023"
    page.query_params["requests"] = "30"
    page.query_params["lanes"] = "paged"
    page = finished(page.run().button(key="go").click().run())
    report = page.session_state["replay"].report
    assert report["trace"]["format"] == "mix azure-code-2023"
    assert report["trace"]["rows"] == 30 and list(report["lanes"]) == ["paged"]
