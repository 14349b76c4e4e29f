"""Pictures of every page, both themes, a desk's and a phone's size: `make screenshots`.

screenshots.py FOLDER [DOCS] [NAME ...]: all that a page holds, however long, into FOLDER; the
README's own into DOCS ("-": none); only the states with these names.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.chromium import ARGUMENTS, find
from tests.browser.conftest import Server, Visit
from tests.browser.states import STATES, State, settle, turn

SIZES = {"desk": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
THEMES = ("light", "dark")
STEP = 340
FALSE_REFUSAL = (
    "() => document.querySelector('[data-kv=verdict]').dataset.tone === 'alarm' && "
    "parseInt(document.querySelector('[data-kv=lane-contiguous] .kv-figure b').innerText"
    f".replace(',', '')) > 2500 && window.__kvviz.step > {STEP}"
)
_LENGTH = (
    "() => Math.max(innerHeight, ...[...document.querySelectorAll('[data-testid=stMain], "
    "[data-testid=stSidebarContent]')].filter((part) => part.getBoundingClientRect().right > 0)"
    ".map((part) => part.scrollHeight))"
)
# What sticks out on the right: the page would scroll sideways
SIDEWAYS = (
    "() => [document.documentElement, document.querySelector('[data-testid=stMain]')]"
    ".some((one) => one.scrollWidth > one.clientWidth)"
)


def main(folder: Path, docs: Path | None, names: list[str]) -> None:
    server = Server()
    try:
        server.wait()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find(), args=ARGUMENTS)
            if docs is not None:
                _readme(browser, server, docs)
            for name in names or STATES:
                for size in SIZES:
                    _one(browser, server, STATES[name], folder, f"{name}-{size}")
            browser.close()
    finally:
        server.stop()


def _one(browser: Browser, server: Server, state: State, folder: Path, name: str) -> None:
    """The whole page: Streamlit scrolls inside its window, so the window grows."""
    size = SIZES[name.split("-")[-1]]
    folder.mkdir(parents=True, exist_ok=True)
    visit = Visit(
        browser, server.url + state.path, state.ready, color_scheme=THEMES[0], viewport=size
    )
    try:
        settle(visit.page)
        state.reach(visit.page)
        _grow(visit.page)
        for theme in THEMES:
            turn(visit.page, theme)
            visit.page.screenshot(path=folder / f"{name}-{theme}.png")
            wide = " (it scrolls sideways)" if visit.page.evaluate(SIDEWAYS) else ""
            print(f"{name}-{theme}.png{wide}", flush=True)
        for error in visit.errors:
            print(f"  {error}")
    finally:
        visit.close()


def _grow(page: Page) -> None:
    width = page.viewport_size["width"]
    for _ in range(2):  # figures may grow with the window
        page.set_viewport_size({"width": width, "height": page.evaluate(_LENGTH)})
        page.wait_for_timeout(400)


def _readme(browser: Browser, server: Server, folder: Path) -> None:
    """live-light.png and live-dark.png: the default mix at a false refusal, paused."""
    folder.mkdir(parents=True, exist_ok=True)
    for scheme in THEMES:
        one = Visit(browser, f"{server.url}/?speed=20", color_scheme=scheme)
        one.until(FALSE_REFUSAL, 120)
        for _ in range(40):  # the pause may come a step too late; step on to the next
            one.page.get_by_role("button", name="Pause").or_(
                one.page.get_by_role("button", name="Step", exact=True)
            ).first.click()
            one.page.wait_for_timeout(400)
            if one.page.evaluate(FALSE_REFUSAL):
                break
        one.page.wait_for_timeout(800)
        one.page.screenshot(path=folder / f"live-{scheme}.png")
        one.close()


if __name__ == "__main__":
    pictures, *rest = sys.argv[1:]
    where = rest[0] if rest else "-"
    main(Path(pictures), None if where == "-" else Path(where), rest[1:])
