"""kvviz: what the server runs, and what each session runs.

`streamlit run app.py` finds `app` here and serves it; each session then runs this file again as
its script, which only sets the page up and navigates.
"""

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from kvviz.ui.address import drop_endless_numbers
from kvviz.ui.style import ICON, page_style

if get_script_run_ctx(suppress_warning=True) is None:
    from streamlit.runtime.pages_manager import PagesManager

    from kvviz.ui.server import lifespan, routes

    # As st.navigation does, only before the first visitor comes: one who asks for /scenario would
    # get that file alone, and Streamlit's own list of what is in pages/.
    PagesManager.uses_pages_directory = False
    app = st.App(__file__, lifespan=lifespan, routes=routes())
else:
    st.set_page_config(page_title="kvviz", page_icon=str(ICON), layout="wide")
    page_style()
    drop_endless_numbers()
    pages = [
        st.Page("pages/live.py", title="Live", default=True),
        st.Page("pages/lesson.py", title="Lesson"),
        st.Page("pages/replay.py", title="Replay"),
        st.Page("pages/sweep.py", title="Sweep"),
        st.Page("pages/scenario.py", title="Scenarios"),
        st.Page("pages/recording.py", title="Recording"),
        st.Page("pages/capacity.py", title="Capacity"),
        st.Page("pages/paper.py", title="The paper's figure"),
        st.Page("pages/bench.py", title="Bench"),
        st.Page("pages/terms.py", title="Terms"),
    ]
    st.navigation(pages, position="top").run()
