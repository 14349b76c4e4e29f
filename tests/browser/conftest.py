"""A real server and a real browser, one of each for all tests here."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.chromium import ARGUMENTS, find

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "artifacts"
READY = "() => window.__kvviz && window.__kvviz.maps >= 2 && window.__kvviz.charts >= 4"


class Server:
    """`streamlit run app.py` on a free port. Runners outlive their sessions by a second only,
    so that tests need not wait for them. `start`: what runs streamlit, given its words."""

    def __init__(
        self,
        log: str = "server.log",
        start: tuple[str, ...] = ("-m", "streamlit"),
        **environment: str,
    ) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://localhost:{self.port}"
        ARTIFACTS.mkdir(exist_ok=True)
        self.log = (ARTIFACTS / log).open("w")
        self.process = subprocess.Popen(
            [sys.executable, *start, "run", "app.py", "--server.port", str(self.port)],
            cwd=ROOT,
            env=os.environ | {"KVVIZ_GRACE_SECONDS": "1", **environment},
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )

    def wait(self, seconds: float = 90) -> None:
        """Until the server answers and the model is loaded (the preload thread has ended)."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=5):
                    return
            except OSError:
                assert self.process.poll() is None, "the server ended: see artifacts/server.log"
                time.sleep(0.2)
        raise AssertionError("the server did not answer")

    def status(self) -> dict[str, int]:
        """What the server says of its runner threads and pools."""
        with urllib.request.urlopen(f"{self.url}/kvviz/status", timeout=10) as answer:
            return json.load(answer)

    def until_empty(self, threads: int = 1 << 30, seconds: float = 60) -> dict[str, int]:
        """Its status once nothing runs there any more, no pool is held, and no more than so many
        threads are left."""
        deadline = time.monotonic() + seconds
        while True:
            status = self.status()
            if not (status["runners"] or status["pool_bytes"] or status["threads"] > threads):
                break
            assert time.monotonic() < deadline, f"something stays behind: {status}"
            time.sleep(0.1)
        return status

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self.log.close()


# Not for the session: Playwright's loop must not run on under what the process tests next
@pytest.fixture(scope="package")
def server() -> Iterator[Server]:
    server = Server()
    try:
        server.wait()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find(), args=ARGUMENTS)
        yield browser
        browser.close()


class Visit:
    """A page in a context of its own, with what went wrong on it."""

    def __init__(self, browser: Browser, address: str, ready: str = READY, **look: object) -> None:
        self.context = browser.new_context(**({"viewport": {"width": 1440, "height": 900}} | look))
        self.page: Page = self.context.new_page()
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.page.on("console", lambda m: m.type == "error" and self.errors.append(m.text))
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on("request", lambda r: self._note(r.url, address))
        self.page.goto(address)
        self.page.wait_for_function(ready, timeout=60_000)

    def _note(self, url: str, address: str) -> None:
        host = address.split("/")[2]
        if url.startswith(("http", "ws")) and url.split("/")[2] != host:
            self.foreign.append(url)

    def probe(self, name: str) -> object:
        return self.page.evaluate(f"() => window.__kvviz.{name}")

    def text(self, name: str) -> str:
        return self.page.locator(f"[data-kv={name}]").inner_text()

    def until(self, condition: str, seconds: float = 60) -> None:
        self.page.wait_for_function(condition, timeout=seconds * 1000)

    def close(self) -> None:
        self.context.close()


@pytest.fixture
def visit(server: Server, browser: Browser) -> Iterator[object]:
    """`visit("/?seed=3")` opens a new session; all are closed at the end."""
    visits: list[Visit] = []

    def open_page(path: str = "/", **look: object) -> Visit:
        visits.append(Visit(browser, server.url + path, **look))
        return visits[-1]

    yield open_page
    for one in visits:
        one.close()


@pytest.fixture(scope="package")
def artifacts() -> Path:
    ARTIFACTS.mkdir(exist_ok=True)
    return ARTIFACTS
