"""The states of every page that a person meets: for the pictures, and for the check of access."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from playwright.sync_api import Page

from kvviz.views.theme import THEMES
from tests.browser.conftest import READY

QUIET = (
    "() => document.querySelector('[data-testid=stMainBlockContainer]') && "
    "document.querySelector('[data-testid=stApp]').dataset.testScriptState !== 'running' && "
    "document.querySelector('[data-testid=stMainBlockContainer] [data-testid=stElementContainer]')"
)
_DRAWN_IN = (  # every figure that is seen
    "(colour) => [...document.querySelectorAll('.js-plotly-plot')].every((figure) => "
    "!figure.checkVisibility() || figure._fullLayout?.font.color === colour)"
)
# Streamlit fades in what a new run of the script has drawn
_STILL = "() => !document.getAnimations().some((one) => one instanceof CSSTransition)"
_SETTLE_MS = 700  # figures come a moment after the script


@dataclass(frozen=True)
class State:
    """path: with the address's parameters. reach: what a person does to get there."""

    path: str
    reach: Callable[[Page], None] = lambda page: None
    ready: str = QUIET


def settle(page: Page, seconds: float = 60) -> None:
    """Until the script has run and its figures are there."""
    page.wait_for_timeout(200)
    page.wait_for_function(QUIET, timeout=seconds * 1000)
    page.wait_for_timeout(_SETTLE_MS)
    page.wait_for_function(_STILL, timeout=seconds * 1000)


def turn(page: Page, theme: str) -> None:
    """To "light" or "dark"; the figures follow."""
    page.emulate_media(color_scheme=theme)
    page.wait_for_timeout(400)  # the page looks for it now and then
    page.wait_for_function(_DRAWN_IN, arg=THEMES[theme].text)
    settle(page)


def open_sidebar(page: Page) -> None:
    """On a phone it is closed."""
    button = page.get_by_test_id("stExpandSidebarButton")
    if button.is_visible():
        button.click()
        page.wait_for_timeout(500)


def close_sidebar(page: Page) -> None:
    """On a phone it lies over the page."""
    if page.viewport_size["width"] < 768:
        page.get_by_test_id("stSidebarCollapseButton").get_by_role("button").click()
        page.wait_for_timeout(500)


def press(*names: str, sidebar: bool = False) -> Callable[[Page], None]:
    """Presses the buttons in turn."""

    def reach(page: Page) -> None:
        settle(page)
        for name in names:
            if sidebar:
                open_sidebar(page)
            # What follows: the key that is its shortcut
            label = re.compile(f"^{re.escape(name)}")
            page.get_by_role("button", name=label).first.click()
            if sidebar:
                close_sidebar(page)
            settle(page, 180)  # some measure something

    return reach


def _pause(page: Page) -> None:
    page.get_by_role("button", name="Pause").click()
    page.wait_for_timeout(_SETTLE_MS)


def _inspect(page: Page) -> None:
    """The last false refusal: its request, the events, a pinned step, the whole run."""
    page.get_by_role("button", name="Pin this step as A").click()
    page.locator("[data-kv=log] summary").click()
    page.get_by_label("verdict").select_option("fragmented")
    page.locator("[data-kv=log-rows] button").first.click()
    page.get_by_label("whole run of").select_option("contiguous")
    page.locator(".kv-life").first.wait_for()
    page.wait_for_function("() => !!document.querySelector('[data-kv=run]').kvBitmap")
    page.locator("[data-kv=facts] .kv-link").first.wait_for()
    page.wait_for_timeout(_SETTLE_MS)


def _give_requests(page: Page) -> None:
    open_sidebar(page)
    page.get_by_text("Your own requests").click()
    page.wait_for_timeout(_SETTLE_MS)


def _answer(page: Page) -> None:
    settle(page)
    for name in ("B", "3,392", "2,048"):
        page.get_by_role("radiogroup", name="Your answer").get_by_text(name, exact=True).click()
        settle(page)


def _until_done(*words: str) -> Callable[[Page], None]:
    """Until the page shows the first of these texts."""

    def reach(page: Page) -> None:
        page.get_by_text(words[0]).first.wait_for(timeout=120_000)
        settle(page)

    return reach


def _then(*steps: Callable[[Page], None]) -> Callable[[Page], None]:
    def reach(page: Page) -> None:
        for step in steps:
            step(page)

    return reach


def _make_recording(page: Page) -> None:
    settle(page)
    open_sidebar(page)
    page.get_by_test_id("stSidebar").get_by_text("Made here").click()
    settle(page)
    page.get_by_role("button", name="Record", exact=True).click()
    page.get_by_text("Free vs admissible, over the last steps").wait_for(timeout=120_000)
    close_sidebar(page)
    settle(page)


STATES: dict[str, State] = {
    "live": State("/?seed=3&speed=20", _pause, READY),
    "live-running": State("/?seed=3&speed=20", ready=READY),
    "live-inspected": State("/?step=260", _inspect, READY),
    "live-requests": State("/?preset=azure-chat-2023&speed=20", _give_requests, READY),
    "lesson-1": State("/lesson"),
    "lesson-1-done": State("/lesson", press("Fill the pool")),
    "lesson-2-done": State("/lesson?step=2", press("Let a, c, e and g finish")),
    "lesson-3-done": State("/lesson?step=3", press("Measure the holes")),
    "lesson-4-done": State("/lesson?step=4", press("Ask for 2,048")),
    "lesson-5-done": State("/lesson?step=5", press("Read it as a heap, and free b")),
    "lesson-6-done": State("/lesson?step=6", press("Compact and admit i")),
    "lesson-7-done": State("/lesson?step=7", press("Serve the same sequence in blocks")),
    "lesson-8-done": State("/lesson?step=8", press("One more token for every request")),
    "lesson-questions": State("/lesson?step=questions"),
    "lesson-answered": State("/lesson?step=questions", _answer),
    "replay": State("/replay"),
    "replay-done": State(
        "/replay", _then(press("Replay", sidebar=True), _until_done("The memory at one moment"))
    ),
    "replay-gpu": State(
        "/replay?pool=A+GPU",
        _then(press("Replay", sidebar=True), _until_done("The memory at one moment")),
    ),
    "sweep": State("/sweep"),
    "sweep-done": State("/sweep", _then(press("Run"), _until_done("Table as CSV"))),
    "scenario": State("/scenario"),
    "recording": State("/recording"),
    "recording-made": State("/recording", _make_recording),
    "capacity": State("/capacity"),
    "capacity-measured": State(
        "/capacity?requests=50", _then(press("Measure"), _until_done("Hatched: plain"))
    ),
    "paper": State("/paper"),
    "paper-measured": State(
        "/paper?seeds=1&steps=2000", _then(press("Measure"), _until_done("holds seven regions"))
    ),
    "bench": State("/bench"),
    "terms": State("/terms"),
}
