"""The live page in a real browser, on a real server, on real tensors."""

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


def _map_source(one: Visit, lane: str) -> str:
    return one.page.evaluate(f"() => document.querySelector('[data-kv=map-{lane}]').kvImage.source")


def test_it_draws_and_moves(visit: Open) -> None:
    """A page that loads with errors, asks other hosts, or shows a still picture."""
    one = visit()
    before = {lane: _map_source(one, lane) for lane in ("contiguous", "paged")}
    step = one.probe("step")
    one.until(f"() => window.__kvviz.step > {step} + 20")
    for lane, source in before.items():
        assert source != _map_source(one, lane)
    assert "real tensors" in one.text("chips")
    assert one.errors == []
    assert one.foreign == []


def test_fragmentation_is_refused_and_explained(visit: Open) -> None:
    """The default mix must show the product's point within the first seconds."""
    one = visit()
    one.until(
        "() => /^Contiguous refuses request \\d+: it needs [\\d,]+ slots; [\\d,]+ are free, but "
        "the largest hole is [\\d,]+. Fragmented.$/.test("
        "document.querySelector('[data-kv=text]').innerText)",
        60,
    )
    false_refusals = one.page.locator("[data-kv=lane-contiguous] .kv-figure b").nth(2)
    assert not false_refusals.inner_text().startswith("0 of")
    paged = one.page.locator("[data-kv=lane-paged] .kv-figure b").nth(2)
    assert paged.inner_text().startswith("0 of")


def test_outputs_are_compared_and_the_map_is_checked(visit: Open) -> None:
    """The two claims under the verdict must come true on this run."""
    one = visit()
    one.until(
        "() => /outputs equal (\\d+)\\/\\1/.test(document.body.innerText) && "
        "/map = tensors at step/.test(document.body.innerText)",
        60,
    )


def test_pause_holds_the_picture_and_step_makes_one(visit: Open) -> None:
    one = visit()
    one.page.get_by_role("button", name="Pause").click()
    one.until("() => window.__kvviz.state === 'paused'")
    step, source = one.probe("step"), _map_source(one, "contiguous")
    one.page.wait_for_timeout(700)
    assert step == one.probe("step")
    assert source == _map_source(one, "contiguous")
    one.page.get_by_role("button", name="Step", exact=True).click()
    one.until(f"() => window.__kvviz.step === {step} + 1")
    one.page.get_by_role("button", name="Play").click()
    one.until(f"() => window.__kvviz.step > {step} + 5")


def test_a_slider_changes_the_mix_and_the_address(visit: Open) -> None:
    """The run must go on (no restart) and the settings must be in the link."""
    one = visit()
    one.until("() => window.__kvviz.step > 150")
    slider = one.page.get_by_role("slider", name="Requests a step")
    slider.focus()
    for _ in range(3):
        one.page.keyboard.press("ArrowRight")
    one.until("() => location.search.includes('rate=0.23')")
    assert one.probe("step") > 150


def test_a_restart_says_so(visit: Open) -> None:
    one = visit()
    one.until("() => window.__kvviz.step > 150")
    slider = one.page.get_by_role("slider", name="Block size (slots)")
    slider.focus()
    one.page.keyboard.press("ArrowRight")
    one.page.get_by_text("Restarted at step 0: paged.block_size changed.").wait_for()
    one.until("() => /blocks of 32/.test(document.querySelector('[data-kv=stamp]').innerText)")


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


def test_the_map_names_what_lies_under_the_pointer(visit: Open) -> None:
    one = visit()
    one.page.get_by_role("button", name="Pause").click()
    one.until("() => window.__kvviz.state === 'paused'")
    box = one.page.locator("[data-kv=map-contiguous] .nsewdrag").bounding_box()
    one.page.mouse.move(box["x"] + 8, box["y"] + 4)
    one.until("() => document.querySelector('[data-kv=tip]').style.display === 'block'")
    tip = one.text("tip")
    assert "slots 0 to" in tip
    assert "request" in tip or "hole" in tip


def test_every_number_opens_its_explanation(visit: Open) -> None:
    """A number would stand there without formula, parts and source, for a mouse or a keyboard."""
    one = visit()
    one.page.get_by_role("button", name="Pause").click()
    one.until("() => window.__kvviz.state === 'paused'")
    shown = "() => document.querySelector('[data-kv=tip]').style.display === 'block'"
    free = one.page.locator("[data-kv=lane-contiguous] .kv-figure").first
    free.hover()
    one.until(shown)
    assert "F = sum of all holes = " + free.locator("b").inner_text() in one.text("tip")
    one.page.mouse.move(2, 2)
    one.until("() => document.querySelector('[data-kv=tip]').style.display === 'none'")
    row = one.page.locator("[data-kv=numbers-2] tbody tr").first
    row.locator("td").first.focus()
    one.until(shown)
    value = row.locator("td").first.inner_text()
    told = one.text("tip").split("\n")
    assert told[0] == f"slot usage, contiguous: {value}"
    assert told[1].startswith("used slots / slots = ")
    assert told[2].startswith("numerator: slots written: ")
    assert told[3] == "denominator: slots in the pool: 8,192"
    assert told[-1].startswith("source: ")
    one.page.keyboard.press("Escape")
    one.until("() => document.querySelector('[data-kv=tip]').style.display === 'none'")
    assert one.errors == []


def test_two_sessions_do_not_see_each_other(visit: Open) -> None:
    one, two = visit("/?seed=11"), visit("/?seed=12")
    one.page.get_by_role("button", name="Pause").click()
    one.until("() => window.__kvviz.state === 'paused'")
    step = two.probe("step")
    two.until(f"() => window.__kvviz.step > {step} + 5")
    assert "seed 11" in one.text("stamp")
    assert "seed 12" in two.text("stamp")


def test_a_closed_tab_ends_its_runner(visit: Open, server: Server) -> None:
    """Every visit must give its thread and pools back, after the grace for dropped sockets."""
    one = visit()
    running = server.status()
    assert running["runners"] >= 1
    assert running["pool_bytes"] >= 2 * 8192 * 2048
    one.close()
    server.until_empty()


def test_frames_keep_their_pace_and_size(visit: Open) -> None:
    """Bytes a frame are a promise; the pace is only held to what a busy machine can do."""
    one = visit()
    frames, kilobytes = one.probe("frames"), one.probe("bytes") / 1000
    one.until(f"() => window.__kvviz.frames >= {frames} + 20")
    mean = (one.probe("bytes") / 1000 - kilobytes) / (one.probe("frames") - frames)
    assert mean < 60


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
    """Kept to be looked at; a blank map or a page that overflows sideways fails here."""
    one = visit(color_scheme=scheme, **LOOKS[look])
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
