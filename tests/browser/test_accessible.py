"""Every page, light and dark, under axe-core: nothing serious, nothing critical."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

from tests.browser.states import STATES, settle, turn

HARD = ("serious", "critical")
CHECKED = ("live-inspected", "lesson-answered", "replay")
CHECKED_TOO = ("capacity", "sweep", "scenario", "recording-made", "paper", "bench", "terms")
# Charts without a name of their own
_NAMELESS = """() => [...document.querySelectorAll('.stPlotlyChart, .kv-plot')]
  .filter((chart) => !(chart.getAttribute('aria-label')
    || chart.querySelector('[role=img][aria-label], [role=figure][aria-label]')
    || chart.closest('[role=img][aria-label], [role=figure][aria-label]')))
  .map((chart) => chart.outerHTML.slice(0, 200))"""


def findings(page: Page, **options: object) -> list[str]:
    """One line for each element that a serious or critical rule finds fault with."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    options = {"resultTypes": ["violations"], "iframes": False} | options
    found = page.evaluate("(options) => axe.run(options)", options)["violations"]
    return [
        f"{rule['id']}: {node['target']}: {node['failureSummary'][:300]} {node['html'][:300]}"
        for rule in found
        if rule["impact"] in HARD
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize(
    "name", [*CHECKED, *(pytest.param(name, marks=pytest.mark.long) for name in CHECKED_TOO)]
)
def test_nothing_is_out_of_reach(visit, name):
    """Somebody would not hear a figure's finding, not reach a control, not read a text."""
    state = STATES[name]
    page = visit(state.path, ready=state.ready, color_scheme="light").page
    page.get_by_role("heading", level=1).first.wait_for(timeout=60_000)  # the script has begun
    settle(page)
    state.reach(page)
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.evaluate(_NAMELESS) == []
    assert findings(page) == []
    turn(page, "dark")
    assert findings(page, runOnly=["color-contrast"]) == []  # all that a theme changes


def test_no_page_is_left_out(root: Path):
    """A new page would be looked at by nobody."""
    pages = re.findall(r"st\.Page\(\"pages/(\w+)\.py\"", (root / "app.py").read_text())
    assert {name.split("-")[0] for name in CHECKED + CHECKED_TOO} == set(pages)
    assert {name.split("-")[0] for name in STATES} == set(pages)
