"""A trace of production size through dry lanes: who would have been refused, and why."""

import streamlit as st

from kvviz.errors import KvvizError
from kvviz.ui.replay import about, controls, progress, results, start, the_map
from kvviz.ui.text import plain

st.header("Replay a trace")
order = controls()
state = st.session_state
if order is not None:
    if "replay" in state:
        state["replay"].cancel()
    try:
        state["replay"], state["replay_trace"] = start(order)
    except KvvizError as error:
        st.error(plain(str(error)))
        st.stop()
job = state.get("replay")
if job is None:
    st.write(
        "Choose requests, a pool and lanes, and press **Replay**. It is dry: the lanes' "
        "bookkeeping runs as it would in a server, exact to the token, but nothing is computed, "
        "so a million requests take seconds. Lanes that only run step by step take longer."
    )
    st.stop()
about(job, state["replay_trace"])
if job.running:
    progress(job)
elif job.error:
    st.error(plain(job.error))
elif job.report is None:
    st.info("Cancelled. Press Replay to start anew.")
else:
    results(job.report)
    the_map(job)
