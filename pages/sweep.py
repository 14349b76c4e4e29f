"""A grid of one or two settings: choose, run on every core, look, take the table along."""

import streamlit as st

from kvviz.sweeps.table import as_csv
from kvviz.ui.jobs import desk, watch
from kvviz.ui.style import figure_theme, nothing_yet, page_title
from kvviz.ui.sweep import choose, draw, start
from kvviz.ui.terms import term_links
from kvviz.ui.text import plain

page_title(
    "Sweep: what a setting does, over its whole range",
    "A grid of one or two settings, each cell a dry run: memory alone, no model.",
)
grid = choose()
left, right = st.columns([5, 1], vertical_alignment="center")
if grid is not None:
    left.caption(
        f"{len(grid.places):,} cells of {grid.steps:,} steps. Finished cells are kept on disk and "
        "not run again."
    )
if right.button("Run", type="primary", width="stretch", disabled=grid is None):
    start(grid)
job = desk().jobs.get("sweep")
if job and job.running:
    watch(job, "cells")
if job and job.error:
    st.error(
        f"The sweep failed: {plain(job.error)}. Press Run to try again; finished cells are kept."
    )
result = job and job.result
if not result:
    if job and job.running:
        st.info("The figure comes with the last cell.")
    elif job and job.cancelled:
        st.info("Cancelled. Finished cells are kept: press Run to go on.")
    elif not (job and job.error):
        nothing_yet(
            "Nothing is swept yet",
            "Press Run. You will see a line a lane over one setting, or a heat map a lane over "
            "two, of any figure of the report. Settings and values are chosen in the sidebar.",
        )
    st.stop()
draw(result, figure_theme())
term_links(
    "slot usage and block usage", "external fragmentation", "false refusal", "admissible now"
)
st.download_button("Table as CSV", as_csv(result), "sweep.csv", "text/csv", on_click="ignore")
