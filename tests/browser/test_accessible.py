"""Every page, light and dark, under axe-core: nothing serious, nothing critical."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.browser.states import STATES, settle

HARD = ("serious", "critical")


def findings(page: Page) -> list[str]:
    """One line for each element that a serious or critical rule finds fault with."""
    found = Axe().run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{rule['id']}: {node['target']}: {node['failureSummary'][:300]} {node['html'][:300]}"
        for rule in found
        if rule["impact"] in HARD
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", STATES)
def test_nothing_is_out_of_reach(visit, name, theme):
    """Somebody would not hear a figure's finding, not reach a control, not read a text."""
    state = STATES[name]
    page = visit(state.path, ready=state.ready, color_scheme=theme).page
    settle(page)
    state.reach(page)
    assert findings(page) == []
