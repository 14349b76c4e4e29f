"""The bench page: the last run, none, and files that are none."""

from __future__ import annotations

import json

import pytest
from streamlit.testing.v1 import AppTest

import kvviz.ui.bench

GOOD = {
    "machine": "a *machine*",
    "command": "python -m kvviz bench",
    "figures": {
        "engine": [
            {"name": "speed", "value": 2, "unit": "x", "at_least": 5},
            {"name": "step", "value": 2, "unit": "ms", "at_most": 5, "floor": 1, "floor_of": "b"},
        ],
        "other": [{"name": "context", "value": 1, "unit": "s"}],
    },
    "left_out": {"chat": "not installed"},
}


@pytest.fixture
def visit(root, monkeypatch, tmp_path):
    """`visit(text)`: the page with this last run; None: there was none."""
    monkeypatch.chdir(root)

    def open_page(text: str | None) -> AppTest:
        where = tmp_path / "bench.json"
        if text is not None:
            where.write_text(text, encoding="utf-8")
        monkeypatch.setattr(kvviz.ui.bench, "LAST_RUN", where)
        page = AppTest.from_file(str(root / "pages/bench.py"), default_timeout=60).run()
        assert list(page.exception) == []
        return page

    return open_page


def test_the_last_run_is_shown(visit):
    """Figures would be missing, or not be judged."""
    page = visit(json.dumps(GOOD))
    assert not page.error
    assert "1 of 2 targets held, 1 missed" in page.markdown[0].value
    assert any("a \\*machine\\*" in c.value for c in page.caption)
    assert "chat was left out: not installed" in page.caption[-1].value
    engine, other = page.dataframe
    assert list(engine.value[""]) == ["✗ missed", "✓ held"]
    assert list(engine.value["floor"]) == ["", "1 ms"] and list(other.value["target"]) == [""]


def test_without_a_run_the_command_is_told(visit):
    """A new checkout would show an error."""
    page = visit(None)
    assert not page.error and "python -m kvviz bench --json" in page.info[0].value


def test_a_bad_file_is_told_in_a_line(visit):
    """The page would end in a traceback."""
    page = visit("[1")
    assert "this is no JSON" in page.error[0].value and not page.dataframe
