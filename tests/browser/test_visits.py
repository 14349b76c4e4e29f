"""The live page in a real browser: what needs a visit of its own."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.browser.conftest import Server, Visit

Open = Callable[..., Visit]
RANGE = "() => document.querySelector('[data-kv=time]')._fullLayout.xaxis.range.slice()"
LOOKS = {
    "wide": {"viewport": {"width": 1440, "height": 900}},
    "phone": {"viewport": {"width": 390, "height": 844}},
}


def test_the_address_reproduces_the_controls(visit: Open) -> None:
    one = visit("/?preset=azure-chat-2023&block=64&fit=best&seed=7&pool=16384")
    one.until("() => window.__kvviz.step > 5")
    stamp = one.text("stamp")
    for part in ("azure-chat-2023", "seed 7", "pool 16,384", "best fit", "blocks of 64"):
        assert part in stamp
    assert "azure-chat-2023 lengths / 4" in one.text("chips")


def test_the_control_reads_zero(visit: Open) -> None:
    """If this shows a false refusal, the gauge is painted."""
    one = visit("/?preset=control&speed=flat+out")
    one.until("() => window.__kvviz.step > 400", 60)
    for lane in ("contiguous", "paged"):
        figure = one.page.locator(f"[data-kv=lane-{lane}] .kv-figure b").nth(2)
        assert figure.inner_text() == "0 of 0"


def test_zoom_hover_and_nodes_survive(visit: Open) -> None:
    """Live redraws must not take away what the user is looking at."""
    one = visit("/?speed=20")
    one.until("() => window.__kvviz.step > 150")
    one.page.evaluate("() => { document.querySelector('[data-kv=time]').marked = true; }")
    box = one.page.locator("[data-kv=time]").bounding_box()
    y = box["y"] + 80
    one.page.mouse.move(box["x"] + 0.4 * box["width"], y)
    one.page.mouse.down()
    one.page.mouse.move(box["x"] + 0.7 * box["width"], y, steps=5)
    drawn = one.probe("charts")  # a slow hand: redraws go on around the one that is dragged
    one.until(f"() => window.__kvviz.charts > {drawn} + 6")
    one.page.mouse.up()
    one.until(f"() => {{ const [a, b] = ({RANGE})(); return b - a < 120; }}")
    zoomed = one.page.evaluate(RANGE)
    chart = one.page.locator("[data-kv=size]").bounding_box()
    one.page.mouse.move(chart["x"] + chart["width"] * 0.3, chart["y"] + chart["height"] * 0.5)
    one.page.locator("[data-kv=size] .hoverlayer .hovertext").first.wait_for()
    charts = one.probe("charts")
    one.until(f"() => window.__kvviz.charts > {charts} + 12")
    assert one.page.locator("[data-kv=size] .hoverlayer .hovertext").count() > 0
    assert one.page.evaluate(RANGE) == zoomed
    assert one.page.evaluate("() => document.querySelector('[data-kv=time]').marked")


def test_a_closed_tab_ends_its_runner(visit: Open, server: Server) -> None:
    """Every visit must give its thread and pools back, after the grace for dropped sockets."""
    one = visit()
    running = server.status()
    assert running["runners"] >= 1
    assert running["pool_bytes"] >= 2 * 8192 * 2048
    one.close()
    server.until_empty()


@pytest.mark.parametrize(
    ("look", "scheme"),
    [
        ("wide", "light"),
        ("phone", "dark"),
        pytest.param("wide", "dark", marks=pytest.mark.long),
        pytest.param("phone", "light", marks=pytest.mark.long),
    ],
)
def test_screenshots(visit: Open, artifacts: Path, look: str, scheme: str) -> None:
    """Kept to be looked at; a blank map or a page that overflows sideways fails here, and one whose
    stamp, in two lines because the link has a setting, is cut off below."""
    one = visit("/?speed=50", color_scheme=scheme, **LOOKS[look])
    one.until(
        "() => document.querySelector('.kv').dataset.theme === "
        f"'{scheme}' && window.__kvviz.step > 180"
    )
    one.page.get_by_role("button", name="Pause").click()
    one.until("() => window.__kvviz.state === 'paused'")
    one.page.wait_for_timeout(500)
    picture = one.page.screenshot(path=artifacts / f"live-{look}-{scheme}.png")
    pixels = np.asarray(Image.open(BytesIO(picture)).convert("RGB"))
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 50
    assert one.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    if look == "wide":
        stamp = one.page.locator("[data-kv=stamp]").bounding_box()
        assert stamp["y"] + stamp["height"] <= 900
