"""A trace of production size through dry lanes: who would have been refused, and why."""

import streamlit as st

from kvviz.errors import KvvizError
from kvviz.ui.jobs import desk
from kvviz.ui.replay import about, progress, results, the_map
from kvviz.ui.replay_order import controls, start
from kvviz.ui.style import nothing_yet, page_title
from kvviz.ui.text import plain

page_title(
    "Replay: a trace of production size",
    "Who would have been refused, and why. Dry: memory alone, exact to the token.",
)
order, pressed = controls()
state = st.session_state
job = state.get("replay")
if job is None and not pressed:
    pressed = nothing_yet(
        "Nothing is replayed yet",
        "The lanes' bookkeeping runs as it would in a server and nothing is computed, so a million "
        "requests take seconds. You will see free memory beside what requests could have of it, "
        "who ran and who waited, refusals by verdict, and the memory map of any moment. "
        "Requests, pool and lanes are chosen in the sidebar.",
        f"Replay {order.requests:,} requests",
    )
if pressed:
    try:
        job, state["replay_trace"] = start(order)
        desk().keep("replay", job)
    except KvvizError as error:
        st.error(plain(str(error)))
        st.stop()
    state["replay"] = job
    st.rerun()
if job is None:
    st.stop()
about(job, state["replay_trace"])
if job.running:
    progress(job)
elif job.error:
    st.error(f"The replay failed: {plain(job.error)}")
elif job.report is None:
    st.info("Cancelled, and nothing of it is kept. Press Replay to start anew.")
else:
    results(job.report)
    the_map(job)
