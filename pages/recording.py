"""The recording page: a run that was saved, step by step, and a report of it."""

import streamlit as st

from kvviz.errors import KvvizError
from kvviz.ui.recorded import choose, offer_report, pick, show
from kvviz.ui.text import plain

chosen = choose()
if chosen is None:
    st.info("Choose a recording in the sidebar: every step of it can be looked at here.")
    st.stop()
try:
    manifest = chosen.replay.recording.manifest
    st.caption(
        plain(
            f"{chosen.name}: {manifest.recorded:,} recorded steps, {manifest.device}, "
            f"{manifest.when}, kvviz {manifest.kvviz}"
        )
    )
    show(chosen.replay.at(pick(chosen)))
    offer_report(chosen)
except KvvizError as error:
    st.error(plain(str(error)))
