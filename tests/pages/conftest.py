"""The pages in Streamlit's own test harness, with the model loaded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import kvviz.live.hub
import kvviz.ui.server
from kvviz.build import Backend, load_backend
from kvviz.live.hub import Hub
from kvviz.live.runner import LiveRunner


@pytest.fixture(scope="session")
def loaded() -> Backend:
    """The model that ships with kvviz."""
    return load_backend()


@pytest.fixture(params=["app.py", "pages/live.py"])
def script(request) -> str:
    return request.param


@pytest.fixture
def open_page(root: Path, loaded: Backend, monkeypatch) -> Iterator[Callable[..., AppTest]]:
    """`open_page(script, block="64")`: the page as after a visit with that address."""
    monkeypatch.chdir(root)
    monkeypatch.setattr(
        kvviz.live.hub, "load_backend", lambda _, budget: loaded._replace(budget=budget)
    )
    st.cache_resource.clear()

    def visit(script: str = "pages/live.py", **address: str) -> AppTest:
        page = AppTest.from_file(str(root / script), default_timeout=60)
        for key, value in address.items():
            page.query_params[key] = value
        return page.run()

    yield visit
    hub = kvviz.ui.server.hub()
    runners = list(hub._runners.values())
    hub.close()
    for runner in runners:
        runner.join(30)
    st.cache_resource.clear()
    assert hub.budget.used_bytes == 0


@pytest.fixture
def hub() -> Callable[[], Hub]:
    return lambda: kvviz.ui.server.hub()


@pytest.fixture
def runner(hub) -> Callable[[], LiveRunner]:
    """The one runner of the page that is open."""

    def only() -> LiveRunner:
        (one,) = hub()._runners.values()
        return one

    return only
