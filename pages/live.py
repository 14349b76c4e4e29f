"""The live page: one stream of requests, two KV caches, and why one of them refuses."""

import streamlit as st

from kvviz.errors import KvvizError
from kvviz.ui.channel import live_view
from kvviz.ui.controls import sidebar
from kvviz.ui.session import session_runner
from kvviz.ui.text import plain

config, speed = sidebar()
if config is None:
    st.warning("The run goes on with the last settings that made sense.")
try:
    runner = session_runner(config)
except KvvizError as error:
    st.error(plain(str(error)))
    st.stop()
runner.set_speed(speed)
if config is not None:
    restarted = runner.apply(config)
    if restarted:
        st.toast(f"Restarted at step 0: {', '.join(restarted)} changed.")
live_view(runner)
