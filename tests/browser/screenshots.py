"""Makes the README's pictures from the running app: `make screenshots`."""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.chromium import ARGUMENTS, find
from tests.browser.conftest import Server, Visit

STEP = 340
FALSE_REFUSAL = (
    "() => document.querySelector('[data-kv=verdict]').dataset.tone === 'alarm' && "
    "parseInt(document.querySelector('[data-kv=lane-contiguous] .kv-figure b').innerText"
    f".replace(',', '')) > 2500 && window.__kvviz.step > {STEP}"
)


def main(folder: Path) -> None:
    """live-light.png and live-dark.png: the default mix at a false refusal, paused."""
    folder.mkdir(parents=True, exist_ok=True)
    server = Server()
    try:
        server.wait()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find(), args=ARGUMENTS)
            for scheme in ("light", "dark"):
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
            browser.close()
    finally:
        server.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
