"""The recording page: a run that was saved, step by step, and a report of it."""

import streamlit as st

from kvviz.errors import KvvizError
from kvviz.ui.recorded import choose, make_default, offer_report, pick, show
from kvviz.ui.style import nothing_yet, page_title
from kvviz.ui.text import plain

page_title(
    "Recording: a saved run, step by step", "Every step that was recorded, and a report of it."
)
chosen = choose()
if chosen is None:
    if nothing_yet(
        "No recording yet",
        "Upload one in the sidebar, or have one made there. You will see verdict, memory maps, "
        "charts and numbers of any step, and can take the whole of it along as one HTML file.",
        "Record 300 steps of the default mix",
    ):
        make_default()
        st.rerun()
    st.stop()
try:
    manifest = chosen.replay.recording.manifest
    st.caption(
        plain(
            f"{chosen.name}: {manifest.recorded:,} recorded steps, {manifest.device}, "
            f"{manifest.when.replace('T', ' ').replace('+00:00', ' UTC')}, kvviz {manifest.kvviz}"
        )
    )
    show(chosen.replay.at(pick(chosen)))
    offer_report(chosen)
except KvvizError as error:
    st.error(plain(str(error)))
