"""A grid of one or two settings: choose, run on every core, look, take the table along."""

import streamlit as st

from kvviz.sweeps.table import as_csv
from kvviz.ui.jobs import desk, watch
from kvviz.ui.style import figure_theme
from kvviz.ui.sweep import choose, draw, start
from kvviz.ui.text import plain

st.markdown("#### Sweep: what a setting does, over its whole range")
grid = choose()
left, right = st.columns([5, 1], vertical_alignment="center")
if grid is not None:
    left.caption(
        f"{len(grid.places):,} cells, each a dry run of {grid.steps:,} steps. Finished cells are "
        "kept on disk and not run again."
    )
if right.button("Run", type="primary", width="stretch", disabled=grid is None):
    start(grid)
job = desk().jobs.get("sweep")
if job and job.running:
    watch(job, "cells")
if job and job.error:
    st.error(plain(job.error))
result = job and job.result
if not result:
    st.info("Choose one or two settings at the left, then press Run.")
    st.stop()
draw(result, figure_theme())
st.download_button("Table as CSV", as_csv(result), "sweep.csv", "text/csv", on_click="ignore")
