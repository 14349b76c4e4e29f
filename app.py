"""kvviz: what the server runs, and what each session runs.

`streamlit run app.py` finds `app` here and serves it; each session then runs this file again as
its script, which only sets the page up and navigates.
"""

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from kvviz.ui.style import ICON, page_style

if get_script_run_ctx(suppress_warning=True) is None:
    from kvviz.ui.server import lifespan, routes

    app = st.App(__file__, lifespan=lifespan, routes=routes())
else:
    st.set_page_config(page_title="kvviz", page_icon=str(ICON), layout="wide")
    page_style()
    pages = [
        st.Page("pages/live.py", title="Live", default=True),
        st.Page("pages/recording.py", title="Recording"),
    ]
    st.navigation(pages, position="hidden").run()
