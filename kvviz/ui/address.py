"""What an address may hold, before any control reads it."""

from __future__ import annotations

import math

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx


def drop_endless_numbers() -> None:
    """Take `?seed=inf` and the like out of the address: no control has such a value, and Streamlit
    fails where it makes a whole number of one."""
    endless = [name for name, value in st.query_params.items() if _endless(value)]
    for name in endless:
        del st.query_params[name]
    context = get_script_run_ctx(suppress_warning=True)
    if endless and context is not None:
        # Controls are set from a copy that was made when the page was opened
        with context.session_state.query_params() as parameters:
            parameters.set_initial_query_params_from_current()


def _endless(text: str) -> bool:
    try:
        return not math.isfinite(float(text))
    except ValueError:
        return False
