"""The lesson: why KV caches fragment, in eight steps on real tensors, and three questions."""

import streamlit as st

from kvviz.errors import KvvizError
from kvviz.ui.text import plain

# The first visitor waits for torch and the model, for seconds, and is told so
try:
    with st.spinner("Loading the model and its tensors …"):
        from kvviz.ui.lesson import lesson_page, loaded

        bench = loaded()
except KvvizError as error:
    st.error(plain(str(error)))
    st.stop()
lesson_page(bench)
