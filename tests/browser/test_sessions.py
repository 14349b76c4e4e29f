"""Sessions come and go, in every way that they can: nothing of them stays behind."""

from __future__ import annotations

import http.client
import signal
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.browser.conftest import ROOT, Server, Visit
from tests.browser.faulty import AT_STEP, BAD_SEED
from tests.browser.raw import RawSession
from tests.browser.states import QUIET

Open = Callable[..., Visit]
LIGHT = "pool=2048&context=512"


def test_fifty_sessions_leave_nothing(server: Server) -> None:
    """Every visit costs a thread and a pool for ever: the server dies after a busy day."""
    before = server.until_empty()
    most = 0
    for number in range(50):
        one = RawSession(server.url, f"{LIGHT}&seed={number}")
        way = number % 5
        if way < 3:
            one.look(one.token())
        if way < 2:
            assert one.frame()["stamp"].count(f"seed {number} ")
            most = max(most, server.status()["runners"])
        if way == 4:
            one.rerun(f"{LIGHT}&seed=99")
        one.close() if way in (0, 4) else one.cut()
    assert most >= 1
    server.until_empty(before["threads"])


@pytest.mark.long
def test_browsers_reload_wander_and_leave(visit: Open, server: Server, browser: Browser) -> None:
    """A reload, a page left at once, or a tab closed in mid-frame keeps its pool."""
    before = server.until_empty()
    one = visit(f"/?{LIGHT}")
    for _ in range(2):
        one.page.reload()
        one.page.wait_for_function("() => window.__kvviz && window.__kvviz.frames > 0")
    for name in ("Terms", "Live", "Capacity", "Live", "Terms"):
        one.page.get_by_role("link", name=name, exact=True).first.click()
    two = visit(f"/?{LIGHT}&seed=2")
    two.page.goto("about:blank")
    tabs = [browser.new_page() for _ in range(3)]
    for number, tab in enumerate(tabs):
        tab.goto(f"{server.url}/?{LIGHT}&seed={number}", wait_until="commit")
    for tab in tabs:
        tab.close()
    one.close()
    two.close()
    assert one.errors == two.errors == []
    server.until_empty(before["threads"])


@pytest.mark.long
def test_a_hidden_tab_costs_no_frames(visit: Open) -> None:
    """A browser full of tabs in the background would keep the server busy."""
    one = visit(f"/?{LIGHT}")
    hide = """(hidden) => {
      Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
      document.dispatchEvent(new Event('visibilitychange')); }"""
    one.page.evaluate(hide, True)
    one.page.wait_for_timeout(500)  # a frame may be under way
    frames, step = one.probe("frames"), one.probe("step")
    one.page.wait_for_timeout(1500)
    assert one.probe("frames") == frames
    one.page.evaluate(hide, False)
    one.until(f"() => window.__kvviz.frames > {frames} && window.__kvviz.step > {step} + 5")
    assert one.errors == []


def _answer(address: str, data: bytes | None = None, **headers: str) -> tuple[int, dict[str, str]]:
    request = urllib.request.Request(
        address, data, headers, method="PUT" if data is not None else "GET"
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, {k.lower(): v for k, v in answer.headers.items()}
    except urllib.error.HTTPError as error:
        return error.code, {k.lower(): v for k, v in error.headers.items()}


def test_headers_and_protections(server: Server) -> None:
    """Another site could steer a run through its visitor's browser, or fill the server's memory."""
    foreign = "http://evil.example"
    status, told = _answer(f"{server.url}/_stcore/health", Origin=foreign)
    assert status == 200
    assert told.get("access-control-allow-origin") != "*"
    assert foreign not in told.get("access-control-allow-origin", "")
    for route in ("_stcore/stream", "kvviz/live/anything"):
        with pytest.raises(InvalidStatus) as refused:
            connect(server.url.replace("http", "ws", 1) + "/" + route, origin=foreign)
        assert refused.value.response.status_code == 403
    upload = f"{server.url}/_stcore/upload_file/session/file"
    assert _answer(upload, b"x", **{"Content-Type": "text/plain"})[0] == 403
    _, headers = _answer(f"{server.url}/kvviz/assets/live.js")
    assert headers["x-content-type-options"] == "nosniff"
    settings = (ROOT / ".streamlit" / "config.toml").read_text("utf-8")
    for line in ("enableXsrfProtection = true", "enableCORS = true", "maxUploadSize = 64"):
        assert line in settings


def test_a_file_that_is_too_large_is_turned_away(visit) -> None:
    """Whoever goes past the browser's own check would fill the server's memory."""
    page = visit("/recording", ready=QUIET).page
    with page.expect_request(lambda one: "/upload_file/" in one.url) as sent:
        page.locator("input[type=file]").first.set_input_files(
            {"name": "a.kvviz", "mimeType": "application/octet-stream", "buffer": b"no recording"}
        )
    upload, headers = sent.value, {}
    cookies = {one["name"]: one["value"] for one in page.context.cookies()}
    headers["X-Xsrftoken"] = upload.headers["x-xsrftoken"]
    headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
    headers["Content-Type"] = "multipart/form-data; boundary=x"
    body = b'--x\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\na\r\n--x--\r\n'
    assert _put(upload.url, headers, body, len(body)) < 300
    assert _put(upload.url, headers, body, 65 << 20) == 413


def _put(address: str, headers: dict[str, str], body: bytes, length: int) -> int:
    """The answer's status to a body that is said to be so long."""
    parts = urllib.parse.urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=20)
    try:
        connection.putrequest("PUT", parts.path)
        for name, value in (headers | {"Content-Length": str(length)}).items():
            connection.putheader(name, value)
        connection.endheaders(body)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.fixture
def small_server() -> Iterator[Server]:
    """For two people, with room for one and a half; the runs of seed 666 go wrong."""
    server = Server(
        "small-server.log",
        ("-m", "tests.browser.faulty"),
        KVVIZ_RUNNERS="2",
        KVVIZ_POOL_MIB="40",
        KVVIZ_GRACE_SECONDS="60",
    )
    try:
        server.wait()
        yield server
    finally:
        server.stop()


@pytest.mark.long
def test_a_full_server_says_so_a_fault_is_shown_and_a_stop_is_clean(
    small_server: Server, browser: Browser
) -> None:
    """The visitor too many would see a traceback, one lane's fault would end the page, and the
    server would have to be killed."""
    one = Visit(browser, f"{small_server.url}/?seed={BAD_SEED}")
    one.until(f"() => window.__kvviz.step > {AT_STEP} + 40", 60)
    note = one.text("note")
    assert note.startswith(f"Paged stopped in step {AT_STEP}: AssertionError: request ")
    assert "read K or V that is no number" in note
    assert "Traceback" not in one.page.content()
    assert one.page.locator(".kv-card[data-stopped]").count() == 1
    assert one.page.locator("[data-kv=lane-paged][data-stopped]").count() == 1
    assert one.probe("state") == "running"

    two = RawSession(small_server.url)
    two.look(two.token())
    told = two.frame()
    while told["state"] == "starting":
        two.ready()
        told = two.frame()
    assert (told["state"], told["lanes"]) == ("failed", {})
    assert "a pool of 16 MiB does not fit: all pools together may take 40 MiB" in told["message"]

    three = RawSession(small_server.url)
    three.says("2 people run kvviz on this server already")
    two.cut()
    step = one.probe("step")
    one.until(f"() => window.__kvviz.step > {step} + 5")
    three.rerun(LIGHT)
    three.token()
    assert one.errors == []

    small_server.process.send_signal(signal.SIGTERM)
    assert small_server.process.wait(20) in (0, -signal.SIGTERM)
    one.close()
