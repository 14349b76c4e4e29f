"""The recording page: a file that was uploaded, a run made for it, files that are no recordings."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from streamlit.testing.v1 import AppTest

from kvviz.live.kept import Kept
from kvviz.recording.files import unpack
from kvviz.ui.server import hub
from tests.recording.made import recorded
from tests.recording.test_damage import with_manifest

PAGE = "pages/recording.py"


@pytest.fixture
def linked(root, monkeypatch) -> Callable[..., AppTest]:
    """`linked(step="31")`: the page as after a visit with that address."""
    monkeypatch.chdir(root)

    def visit(**address: str) -> AppTest:
        page = AppTest.from_file(str(root / PAGE), default_timeout=60)
        for name, value in address.items():
            page.query_params[name] = value
        return page.run()

    return visit


@pytest.fixture
def page(linked) -> AppTest:
    return linked()


def upload(page: AppTest, data: bytes) -> AppTest:
    page.file_uploader(key="recording").upload("run.kvviz", data, "application/octet-stream")
    return page.run()


def specs(page: AppTest) -> list[dict]:
    return [json.loads(chart.proto.spec) for chart in page.get("plotly_chart")]


def shown_at(data: bytes, step: int) -> bytes:
    return with_manifest(data, lambda manifest: manifest.update(shown=step))


def quiet(page: AppTest) -> bool:
    return not (list(page.exception) or list(page.error))


def test_nothing_is_chosen_yet(page: AppTest) -> None:
    """The first visit would show an error."""
    assert quiet(page)
    assert "No recording yet" in page.markdown[0].value


def test_a_recording_is_made_where_the_eye_is(page: AppTest) -> None:
    """On a phone, whose sidebar is closed, there would be nothing to press."""
    page.button(key="begin").click().run(timeout=120)
    assert quiet(page)
    assert page.radio(key="source").value == "Made here"
    assert page.select_slider(key="index").value == 299


def test_an_uploaded_recording_is_shown(page: AppTest) -> None:
    """The page would show something else than the file holds."""
    made = recorded(120)
    upload(page, made.data)
    assert quiet(page)
    assert page.select_slider(key="index").value == 119
    assert len(specs(page)) == 7
    last = made.snapshots["contiguous"][-1]
    assert any(f"free **{last.free:,}**" in c.value for c in page.caption)
    assert len(page.dataframe) == 4
    assert any("120 recorded steps" in c.value for c in page.caption)


def test_the_slider_picks_the_step(page: AppTest) -> None:
    """Every step would look like the last one."""
    made = recorded(120)
    upload(page, made.data)
    late = [spec["layout"] for spec in specs(page)]
    page.select_slider(key="index").set_value(30).run()
    assert quiet(page)
    assert late != [spec["layout"] for spec in specs(page)]
    assert any("step 31" in c.value for c in page.caption)
    assert any(f"free **{made.snapshots['paged'][30].free:,}**" in c.value for c in page.caption)


def test_a_live_run_opens_at_the_step_of_its_link(linked) -> None:
    """The link under a saved run would lead to its end, and the address to another step."""
    page = linked(kept=hub().shelf.put(Kept(recorded(120).data, 1, 120, 30)), step="31")
    assert quiet(page)
    assert page.select_slider(key="index").value == 30
    assert any("step 31" in c.value for c in page.caption)
    page.select_slider(key="index").set_value(44).run()
    assert any("step 45" in c.value for c in page.caption)
    assert page.query_params["step"] == "45"


def test_a_file_opens_at_the_step_that_it_names(page: AppTest) -> None:
    made = unpack(recorded(120).data)
    upload(page, shown_at(recorded(120).data, 77))
    assert made.manifest.shown == -1
    assert page.select_slider(key="index").value == 76


def test_a_run_that_is_not_kept_any_more_is_told(linked) -> None:
    page = linked(kept="forgotten")
    assert quiet(page)
    assert "no longer on the server" in page.warning[0].value


@pytest.mark.parametrize("data", [b"no recording", recorded(120).data[:5000]])
def test_a_bad_file_is_told(page: AppTest, data: bytes) -> None:
    """A wrong file would end in a traceback."""
    upload(page, data)
    assert list(page.exception) == []
    (error,) = page.error
    assert error.value.startswith(("The file is no recording", "The recording is damaged"))
    upload(page, recorded(120).data)
    assert quiet(page) and len(specs(page)) == 7


def test_a_run_is_made_here(page: AppTest) -> None:
    """Without a file there would be nothing to look at."""
    page.radio(key="source").set_value("Made here").run()
    page.select_slider(key="of-steps").set_value(100)
    page.button(key="record").click().run()
    assert quiet(page)
    assert page.select_slider(key="index").value == 99
    name, data = page.session_state["made"]
    assert name == "chat-and-documents-100.kvviz"
    assert len(unpack(data).steps) == 100


def test_the_report_is_offered(page: AppTest) -> None:
    upload(page, recorded(120).data)
    page.button(key="make-report").click().run()
    assert quiet(page)
    assert page.session_state["report"].startswith("<!doctype html>")
