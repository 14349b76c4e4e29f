"""One runner a browser session.

Fetched once a full script run. The lease is a session-scoped resource: Streamlit calls `release`
when the session ends, on the server's event loop, so nothing there may wait.
"""

from __future__ import annotations

import streamlit as st

from kvviz.config import RunConfig
from kvviz.live.runner import LiveRunner
from kvviz.ui.server import hub


def session_runner(config: RunConfig | None) -> LiveRunner:
    """The session's runner. Raises CapacityError when the server is full."""
    session = _session_id()
    _lease(session)
    return hub().lease(session, lambda: config or RunConfig())


@st.cache_resource(scope="session", show_spinner=False, on_release=lambda s: hub().release(s))
def _lease(session: str) -> str:
    return session


def _session_id() -> str:
    from streamlit.runtime.scriptrunner import get_script_run_ctx

    context = get_script_run_ctx()
    return context.session_id if context else "no session"
