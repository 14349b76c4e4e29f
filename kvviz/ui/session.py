"""One runner a browser session.

Fetched once a full script run. The lease is a session-scoped resource: Streamlit calls `release`
when the session ends, on the server's event loop, so nothing there may wait.
"""

from __future__ import annotations

import streamlit as st
from streamlit import runtime

from kvviz.config import RunConfig
from kvviz.live.runner import LiveRunner
from kvviz.ui.server import hub

FARTHEST = 200_000  # steps that a link may ask to be made anew
_DIGITS = 12  # read of a number; Python refuses thousands of them


def session_runner(config: RunConfig | None) -> LiveRunner:
    """The session's runner; a new one goes to the step that the address names. Raises
    CapacityError when the server is full."""
    session = _session_id()
    _lease(session)
    return hub().lease(
        session, lambda: config or RunConfig(), linked_step(), lambda: _present(session)
    )


def linked_step() -> int | None:
    """The step that a link leads to: `step` in the address."""
    text = st.query_params.get("step", "")
    if not (text.isascii() and text.isdigit()):
        return None
    return min(int(text[:_DIGITS]), FARTHEST)


@st.cache_resource(scope="session", show_spinner=False, on_release=lambda s: hub().release(s))
def _lease(session: str) -> str:
    return session


def _present(session: str) -> bool:
    """Does somebody have this session open? Yes where there is no server to know it."""
    return not runtime.exists() or runtime.get_instance().is_active_session(session)


def _session_id() -> str:
    from streamlit.runtime.scriptrunner import get_script_run_ctx

    context = get_script_run_ctx()
    return context.session_id if context else "no session"
