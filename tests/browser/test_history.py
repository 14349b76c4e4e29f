"""Time travel on the live page: back to a refusal, into a request, and on to somebody else."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

from tests.browser.conftest import Visit

Open = Callable[..., Visit]
VIEW = "document.querySelector('.kv').parentElement.kvView"
LANES = ("contiguous", "paged")
CURSOR = "((name) => Number(document.querySelector(`[data-kv=cursor-${name}]`)?.dataset.step))"
AT_CURSOR = """() => {
  const line = document.querySelector('[data-kv=cursor-shown]').getBoundingClientRect();
  const area = document.querySelector('[data-kv=run] .nsewdrag').getBoundingClientRect();
  return [line.left - area.left, area.width];
}"""
BREAK = f"""() => {{
  window.kvSocket = window.WebSocket;
  window.WebSocket = class {{
    constructor() {{ setTimeout(() => this.onclose({{ code: 1006 }}), 20); }}
    close() {{}}
  }};
  {VIEW}.socket.close();
}}"""
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
            return [h.size, h.used, h.owner,
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
    one.until(  # those of before the choice are gone
        "() => [...document.querySelectorAll('[data-kv=log-rows] tr')]"
        ".every((row) => row.innerText.includes('fragmented'))"
    )
    row = one.page.locator("[data-kv=log-rows] tr").last
    row.wait_for()
    assert one.text("state") == "paused"
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
    one.until(f"() => {CURSOR}('shown') === {step} && {CURSOR}('pinned') === 260")
    drawn = one.page.evaluate("() => document.querySelector('[data-kv=run]').kvImage.source")
    box = one.page.locator("[data-kv=run] .nsewdrag")
    box.scroll_into_view_if_needed()
    box.click(position={"x": 12, "y": 60})
    one.until(f"() => window.__kvviz.step < {step} && {CURSOR}('shown') === window.__kvviz.step")
    left, width = one.page.evaluate(AT_CURSOR)
    assert abs(left - 12) < 1 + width / 261  # on the step that was clicked
    assert drawn == one.page.evaluate(
        "() => document.querySelector('[data-kv=run]').kvImage.source"
    )

    step = one.probe("step")
    one.page.get_by_role("button", name="Save recording").click()
    opens = one.page.get_by_role("link", name=f"Open at step {step}")
    opens.wait_for()
    with one.context.expect_page() as opened:
        opens.click()
    page = opened.value
    page.get_by_text(f"step {step} |").wait_for(timeout=60_000)
    assert page.get_by_role("slider", name="Step").get_attribute("aria-valuetext") == str(step)
    assert f"step={step}" in page.url
    assert one.errors == []


def test_a_link_holds_the_view(visit: Open) -> None:
    """A colleague would see the step, but other colours, other panels, another zoom, and search."""
    asked = {
        "pin": "200",
        "whole": "paged",
        "colour": "state",
        "log": "refuse_fragmented_",
        "zoom": "map-paged_0_64_20_4*time_100_200_0_5000",
        "hole": "paged_8191",
        "embed_options": "dark_theme",
    }
    address = "/?step=260&" + "&".join(f"{name}={value}" for name, value in asked.items())
    one = visit(address, color_scheme="light")
    one.until("() => document.querySelector('[data-kv=run]').kvBitmap && window.__kvviz.charts > 4")
    one.until(f"() => {CURSOR}('pinned') === 200 && {CURSOR}('shown') === 260")
    one.until("() => document.querySelectorAll('[data-kv=log-rows] tr').length > 2")
    assert one.page.evaluate(
        "() => [document.querySelector('[data-kv=map-paged]')._fullLayout.xaxis.range,"
        " document.querySelector('[data-kv=time]')._fullLayout.xaxis.range]"
    ) == [[0, 64], [100, 200]]
    assert "paged: " in one.text("facts")
    assert one.page.locator("[data-kv=colour]").input_value() == "state"
    assert one.page.evaluate("() => document.querySelector('.kv').dataset.theme") == "dark"
    again = parse_qs(urlsplit(one.page.evaluate(f"() => {VIEW}.link.address()")).query)
    assert again == {"step": ["260"]} | {name: [value] for name, value in asked.items()}

    one.page.evaluate(BREAK)
    one.page.get_by_text("The connection to the engine is lost; trying again.").wait_for()
    assert one.text("state") == "not connected"
    assert one.page.get_by_role("button", name="Play").is_disabled()
    one.page.evaluate("() => { window.WebSocket = window.kvSocket; }")
    one.page.get_by_role("button", name="Try now").click()
    one.until("() => document.querySelector('.kv').dataset.state === 'paused'")
    assert one.page.locator("[data-kv=said]").inner_text() == ""
    assert one.errors == []
