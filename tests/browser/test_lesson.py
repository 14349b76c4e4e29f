"""The lesson in a real browser: by keyboard, from the first step to the last answer."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from kvviz.lesson.steps import STEPS
from tests.browser.conftest import Server, Visit
from tests.browser.states import QUIET, settle

Open = Callable[..., Visit]
LISTENING = f"() => window.__kvvizKeys && ({QUIET})()"


def _is_at(page: Page, place: int, seconds: float = 30) -> None:
    title = "Three questions" if place > len(STEPS) else f"Step {place} of {len(STEPS)}: "
    expect(page.get_by_role("heading", level=1)).to_have_text(
        re.compile(f"^{re.escape(title)}"), timeout=seconds * 1000
    )


def _press(page: Page, key: str, place: int) -> None:
    page.keyboard.press(key)
    _is_at(page, place)
    page.wait_for_function(QUIET)


def test_by_keyboard_from_the_first_step_to_the_last(visit: Open) -> None:
    """A reader without a mouse would be stuck, or a link open another step."""
    page = visit("/lesson", ready=QUIET).page
    _is_at(page, 1, 60)  # the server may have to load the model first
    page.wait_for_function(LISTENING)
    for place in range(2, len(STEPS) + 2):
        _press(page, "ArrowRight", place)
        assert page.url.endswith(f"step={'questions' if place > len(STEPS) else place}")
    page.keyboard.press("ArrowRight")
    _press(page, "ArrowLeft", len(STEPS))


def test_arrows_work_wherever_the_focus_is(visit: Open, server: Server) -> None:
    """After a click on a step's number, or on the action, the keys would do nothing."""
    page = visit("/lesson?step=6", ready=LISTENING).page
    _is_at(page, 6)
    page.locator(".st-key-step").get_by_text("3", exact=True).click()
    _is_at(page, 3)
    settle(page)
    _press(page, "ArrowRight", 4)
    _press(page, "ArrowLeft", 3)
    page.keyboard.press("a")  # the action
    expect(page.get_by_text("F = 4,096 free slots in 4 holes")).to_be_visible(timeout=30_000)
    page.get_by_role("button", name="Measure the holes").click()
    settle(page)
    _press(page, "ArrowRight", 4)
    page.goto(f"{server.url}/lesson?step=6")  # the choice on this step keeps its own arrows
    page.wait_for_function(LISTENING)
    _is_at(page, 6)
    page.locator(".st-key-choice-6").get_by_text("full slide").click()
    settle(page)
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(500)
    _is_at(page, 6)


def test_the_questions_are_answered_by_changing_a_setting(visit: Open) -> None:
    """Right answers would not be told, or the end be nowhere."""
    page = visit("/lesson?step=questions", ready=QUIET).page
    _is_at(page, 9)

    def answer(number: int, words: str) -> None:
        group = page.get_by_role("radiogroup", name="Your answer").nth(number - 1)
        group.get_by_text(words, exact=True).click()

    page.get_by_role("radio", name="worst").click()
    answer(1, "C")
    expect(page.get_by_text("Right: C.")).to_be_visible(timeout=30_000)
    page.get_by_role("radio", name="first").click()  # another setting, another answer
    expect(page.get_by_text("Not C: it is A.")).to_be_visible(timeout=30_000)
    answer(1, "A")
    answer(2, "3,392")
    expect(page.get_by_text("Right: 3,392.")).to_be_visible(timeout=30_000)
    answer(3, "2,048")
    expect(page.get_by_text("All three are right")).to_be_visible(timeout=30_000)
