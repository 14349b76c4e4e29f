"""Time travel on the live page: back to a refusal, into a request, and on to somebody else."""

from __future__ import annotations

from collections.abc import Callable

from tests.browser.conftest import Visit

Open = Callable[..., Visit]
VIEW = "document.querySelector('.kv').parentElement.kvView"
LANES = ("contiguous", "paged")
GHOST_AT = f"""() => {{
  const hover = {VIEW}.hover.contiguous, plot = document.querySelector('[data-kv=map-contiguous]');
  const box = plot.querySelector('.nsewdrag').getBoundingClientRect(), y = plot._fullLayout.yaxis;
  const slot = hover.ghost[1] + 2, row = Math.floor(slot / hover.columns);
  return [box.left + box.width * (slot % hover.columns + 0.5) / hover.columns,
          box.top + box.height * (row + 0.5) / Math.max(...y.range), hover.ghost[0]];
}}"""


def _maps(one: Visit) -> list[str]:
    """The rows under both maps, and the pictures."""
    return [
        one.page.evaluate(
            f"""(lane) => {{ const h = {VIEW}.hover[lane];
            return [h.start, h.size, h.used, h.owner,
                    document.querySelector(`[data-kv=map-${{lane}}]`).kvImage.source].join(); }}""",
            lane,
        )
        for lane in LANES
    ]


def _press(one: Visit, button: str, then: str) -> None:
    one.page.get_by_role("button", name=button, exact=True).click()
    one.until(then)


def test_a_refusal_is_found_inspected_and_shared(visit: Open) -> None:
    """A picture that cannot be found again, asked, or shown to others proves little."""
    one = visit("/?speed=flat+out")
    one.until(f"() => Object.values({VIEW}.hover).length && window.__kvviz.step > 230", 90)
    _press(one, "Pause", "() => window.__kvviz.state === 'paused'")
    scrub = one.page.get_by_role("slider", name="Step that is shown")
    scrub.focus()
    one.page.keyboard.press("Home")
    one.until("() => window.__kvviz.looking && window.__kvviz.step === 0")
    for _ in range(3):
        step = one.probe("step")
        _press(one, "Next refusal", f"() => window.__kvviz.step > {step}")
    step, verdict = one.probe("step"), one.text("text")
    assert verdict.startswith("Contiguous refuses request")
    assert "Fragmented." in verdict

    x, y, request = one.page.evaluate(GHOST_AT)
    one.page.mouse.click(x, y)
    one.page.locator(".kv-life").first.wait_for()
    facts = one.text("facts")
    assert f"Request {request} in contiguous: waiting" in facts
    assert "enough is free, but in pieces" in facts
    assert f"request {request}:" in verdict

    one.page.get_by_role("button", name="Copy link").click()
    address = one.page.get_by_role("textbox", name="Link to this step")
    address.wait_for()
    link = address.input_value()
    assert f"step={step}" in link
    assert f"sel={request}" in link

    two = visit(link[link.index("/", 8) :])
    two.until(f"() => window.__kvviz.step === {step} && window.__kvviz.state === 'paused'", 60)
    two.page.locator(".kv-life").first.wait_for()
    assert two.text("text") == verdict
    assert f"Request {request} in contiguous: waiting" in two.text("facts")
    assert _maps(two) == _maps(one)
    assert "dry" in two.text("chips")
    assert one.errors == two.errors == []


def test_events_lead_to_their_moment_and_moments_are_compared(visit: Open) -> None:
    one = visit("/?step=260")
    one.until("() => window.__kvviz.step === 260 && window.__kvviz.state === 'paused'", 60)
    one.page.get_by_role("button", name="Pin this step as A").click()
    one.page.locator("[data-kv=log] summary").click()
    one.page.get_by_label("verdict").select_option("fragmented")
    one.until("() => /^\\d+ of \\d+/.test(document.querySelector('[data-kv=log-count]').innerText)")
    row = one.page.locator("[data-kv=log-rows] tr").last
    row.wait_for()
    step, request = int(row.locator("td").first.inner_text()), row.locator("td").nth(3).inner_text()
    row.locator("button").press("Enter")
    one.until(f"() => window.__kvviz.looking && window.__kvviz.step === {step}")
    one.until(
        f"() => document.querySelector('[data-kv=facts]').innerText.includes('Request {request}')"
    )
    one.until(
        "() => document.querySelector('[data-kv=diff]').innerText"
        f".startsWith('A is step 260; shown is step {step}.')"
    )
    one.page.get_by_label("whole run of").select_option("contiguous")
    one.until("() => !!document.querySelector('[data-kv=run]').kvBitmap")
    box = one.page.locator("[data-kv=run] .nsewdrag")
    box.scroll_into_view_if_needed()
    box.click(position={"x": 12, "y": 60})
    one.until(f"() => window.__kvviz.step < {step}")
    assert one.errors == []
