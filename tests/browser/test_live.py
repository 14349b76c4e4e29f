"""The live page in a real browser, on a real server, on real tensors: one visit for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser

from tests.browser.conftest import Server, Visit

Open = Callable[..., Visit]


def _map_source(one: Visit, lane: str) -> str:
    return one.page.evaluate(f"() => document.querySelector('[data-kv=map-{lane}]').kvImage.source")


@pytest.fixture(scope="module")
def live(server: Server, browser: Browser) -> Iterator[Visit]:
    """The page as it opens, for all tests that leave it as good as they found it. Those that
    change its settings stand behind the others."""
    one = Visit(browser, server.url)
    yield one
    one.close()


def pause(one: Visit) -> None:
    if one.probe("state") != "paused":
        one.page.get_by_role("button", name="Pause").click()
        one.until("() => window.__kvviz.state === 'paused'")


def play(one: Visit) -> None:
    if one.probe("state") == "paused":
        one.page.get_by_role("button", name="Play").click()
        one.until("() => window.__kvviz.state === 'running'")


def test_it_draws_and_moves(live: Visit) -> None:
    """A page that loads with errors, asks other hosts, or shows a still picture."""
    play(live)
    before = {lane: _map_source(live, lane) for lane in ("contiguous", "paged")}
    step = live.probe("step")
    live.until(f"() => window.__kvviz.step > {step} + 20")
    for lane, source in before.items():
        assert source != _map_source(live, lane)
    assert "real tensors" in live.text("chips")
    assert live.errors == []
    assert live.foreign == []


def test_fragmentation_is_refused_and_explained(live: Visit) -> None:
    """The default mix must show the product's point within the first seconds."""
    play(live)
    live.until(
        "() => /^Contiguous refuses request \\d+: it needs [\\d,]+ slots; [\\d,]+ are free, but "
        "the largest hole is [\\d,]+. Fragmented.$/.test("
        "document.querySelector('[data-kv=text]').innerText)",
        60,
    )
    false_refusals = live.page.locator("[data-kv=lane-contiguous] .kv-figure b").nth(2)
    assert not false_refusals.inner_text().startswith("0 of")
    paged = live.page.locator("[data-kv=lane-paged] .kv-figure b").nth(2)
    assert paged.inner_text().startswith("0 of")


def test_outputs_are_compared_and_the_map_is_checked(live: Visit) -> None:
    """The two claims under the verdict must come true on this run."""
    play(live)
    live.until(
        "() => /outputs equal (\\d+)\\/\\1/.test(document.body.innerText) && "
        "/map = tensors at step/.test(document.body.innerText)",
        60,
    )


def test_pause_holds_the_picture_and_step_makes_one(live: Visit) -> None:
    pause(live)
    step, source = live.probe("step"), _map_source(live, "contiguous")
    live.page.wait_for_timeout(700)
    assert step == live.probe("step")
    assert source == _map_source(live, "contiguous")
    live.page.get_by_role("button", name="Step", exact=True).click()
    live.until(f"() => window.__kvviz.step === {step} + 1")
    play(live)
    live.until(f"() => window.__kvviz.step > {step} + 5")


def test_the_map_names_what_lies_under_the_pointer(live: Visit) -> None:
    pause(live)
    box = live.page.locator("[data-kv=map-contiguous] .nsewdrag").bounding_box()
    live.page.mouse.move(box["x"] + 8, box["y"] + 4)
    live.until("() => document.querySelector('[data-kv=tip]').style.display === 'block'")
    tip = live.text("tip")
    assert "slots 0 to" in tip
    assert "request" in tip or "hole" in tip


def test_every_number_opens_its_explanation(live: Visit) -> None:
    """A number would stand there without formula, parts and source, for a mouse or a keyboard."""
    pause(live)
    shown = "() => document.querySelector('[data-kv=tip]').style.display === 'block'"
    free = live.page.locator("[data-kv=lane-contiguous] .kv-figure").first
    free.hover()
    live.until(shown)
    assert "F = sum of all holes = " + free.locator("b").inner_text() in live.text("tip")
    live.page.mouse.move(2, 2)
    live.until("() => document.querySelector('[data-kv=tip]').style.display === 'none'")
    row = live.page.locator("[data-kv=numbers-2] tbody tr").first
    row.locator("td").first.focus()
    live.until(shown)
    value = row.locator("td").first.inner_text()
    told = live.text("tip").split("\n")
    assert told[0] == f"slot usage, contiguous: {value}"
    assert told[1].startswith("used slots / slots = ")
    assert told[2].startswith("numerator: slots written: ")
    assert told[3] == "denominator: slots in the pool: 8,192"
    assert told[-1].startswith("source: ")
    live.page.keyboard.press("Escape")
    live.until("() => document.querySelector('[data-kv=tip]').style.display === 'none'")
    assert live.errors == []


def test_frames_keep_their_pace_and_size(live: Visit) -> None:
    """Bytes a frame are a promise; the pace is only held to what a busy machine can do."""
    play(live)
    frames, kilobytes = live.probe("frames"), live.probe("bytes") / 1000
    live.until(f"() => window.__kvviz.frames >= {frames} + 20")
    mean = (live.probe("bytes") / 1000 - kilobytes) / (live.probe("frames") - frames)
    assert mean < 60


def test_two_sessions_do_not_see_each_other(live: Visit, visit: Open) -> None:
    pause(live)
    other = visit("/?seed=12")
    step = other.probe("step")
    other.until(f"() => window.__kvviz.step > {step} + 5")
    assert "seed 1 " in live.text("stamp")
    assert "seed 12 " in other.text("stamp")


def test_a_slider_changes_the_mix_and_the_address(live: Visit) -> None:
    """The run must go on (no restart) and the settings must be in the link."""
    play(live)
    live.until("() => window.__kvviz.step > 150")
    slider = live.page.get_by_role("slider", name="Requests a step")
    slider.focus()
    for _ in range(3):
        live.page.keyboard.press("ArrowRight")
    live.until("() => location.search.includes('rate=0.23')")
    assert live.probe("step") > 150


def test_a_restart_says_so(live: Visit) -> None:
    play(live)
    live.until("() => window.__kvviz.step > 150")
    slider = live.page.get_by_role("slider", name="Block size (slots)")
    slider.focus()
    live.page.keyboard.press("ArrowRight")
    live.page.get_by_text("Restarted at step 0: paged.block_size changed.").wait_for()
    live.until("() => /blocks of 32/.test(document.querySelector('[data-kv=stamp]').innerText)")
