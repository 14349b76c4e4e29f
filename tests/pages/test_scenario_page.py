"""The scenario page, run by Streamlit's test harness."""

from __future__ import annotations

import json

import pytest
from streamlit.testing.v1 import AppTest

from kvviz.scenario.examples import examples
from kvviz.scenario.read import read


@pytest.fixture
def page(root, monkeypatch) -> AppTest:
    monkeypatch.chdir(root)
    return AppTest.from_file(str(root / "pages/scenario.py"), default_timeout=60).run()


def test_the_first_example_is_shown(page):
    """The page would open with an error, or empty."""
    assert list(page.exception) == [] and list(page.error) == []
    assert page.selectbox(key="scenario").value == next(iter(examples()))
    assert "ask 2,048" in page.warning[0].value
    (frame,) = page.dataframe
    assert list(frame.value["verdict"])[12] == "✕ fragmented"


def test_every_example_opens(page):
    """A picture or a table could fail on one of them."""
    single = {"05-half-empty-blocks", "17-deadlock"}  # one operation, one step
    for name in examples():
        page.selectbox(key="scenario").set_value(name).run()
        assert list(page.exception) == [], name
        refused = name == "20-max-len"
        assert len(page.error) == refused, name
        assert len(page.slider) == (not refused and name not in single), name
        assert len(page.dataframe) == (not refused), name


def test_the_slider_moves_through_the_steps(page):
    """Later steps could not be seen."""
    page.selectbox(key="scenario").set_value("13-reserved-limit").run()
    (slider,) = page.slider
    assert slider.max == 8001
    slider.set_value(4000).run()
    assert list(page.exception) == []
    assert page.caption[0].value.startswith("Steps 3,992 to 4,009 of 8,001.")


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (b"{", r"line 1: column 2"),
        (b"\xff", "UTF-8"),
        (b'{"ops": [], "capacity": true, "layout": {"kind": "paged"}}', "capacity: a whole number"),
        (b'{"ops": [["<b>", "$x$"]], "capacity": 9}', "'layout' is missing"),
    ],
    ids=["cut", "bytes", "bool", "missing"],
)
def test_a_bad_upload_is_told(page, file, told):
    """It would end in a traceback, with the example still there as if it were the file's."""
    page.file_uploader[0].upload("bad.json", file, "application/json").run()
    assert list(page.exception) == []
    (error,) = page.error
    assert told in error.value.replace("\\", "") or told in error.value
    assert list(page.dataframe) == []


def test_an_upload_is_shown_instead(page):
    """The example would stay, or markup in its words would be carried out."""
    file = {
        "title": "<b>Mine</b> $x$",
        "capacity": 64,
        "layout": {"kind": "contiguous"},
        "ops": [["allocate", "a", 5]],
    }
    page.file_uploader[0].upload("mine.json", json.dumps(file).encode(), "application/json").run()
    assert list(page.exception) == []
    assert page.markdown[0].value.startswith(r"**\<b\>Mine\</b\> \$x\$**")
    (frame,) = page.dataframe
    assert list(frame.value["op"]) == ["allocate a 5"]


def test_titles_are_shown_in_the_list(page):
    """One would choose among file names."""
    shown = page.selectbox(key="scenario").options
    assert shown == [read(text).title for text in examples().values()]
