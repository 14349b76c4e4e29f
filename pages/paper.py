"""The PagedAttention paper's figures, published beside measured on these caches."""

import streamlit as st

from kvviz.studies.paper import SLOTS, SOURCE, empty_report, run_paper
from kvviz.studies.paper_words import notes, table
from kvviz.sweeps.kept import Kept, default_folder
from kvviz.sweeps.pool import Pool
from kvviz.ui.jobs import desk, watch
from kvviz.ui.style import figure_theme, marks_key, page_title
from kvviz.ui.terms import term_links
from kvviz.ui.text import plain
from kvviz.views import paper
from kvviz.views.findings import paper_said

page_title(
    "The paper's figure: where the KV memory goes",
    f"OPT-13B in fp16 (819,200 bytes a slot), 12 GiB for K and V: {SLOTS:,} slots. At most 2,048 "
    "tokens, lengths as in ShareGPT, a queue that never runs dry. Orca's three reservations are "
    "served by a buddy allocator, vLLM by blocks of 16. Dry: memory alone, no model.",
)
left, middle, right = st.columns([2, 2, 1], vertical_alignment="bottom")
seeds = left.slider("Seeds", 1, 10, 3, key="seeds", bind="query-params")
steps = middle.select_slider(
    "Steps in each run", [2000, 5000, 10000, 20000], 5000, key="steps", bind="query-params"
)
if right.button("Measure", type="primary", width="stretch"):
    desk().start(
        "paper",
        lambda told, cancelled: run_paper(
            tuple(range(1, seeds + 1)),
            Pool(),
            steps=steps,
            kept=Kept(default_folder()),
            told=told,
            cancelled=cancelled,
        ),
    )
job = desk().jobs.get("paper")
if job and job.running:
    watch(job, "runs")
if job and job.error:
    st.error(f"The measurement failed: {plain(job.error)}. Press Measure to try again.")
report = (job and job.result) or empty_report()

if not (job and job.result):
    words = "Measuring: published figures until then."
    if not (job and job.running):
        words = "Published figures only. Press Measure to run the four systems here."
    st.info(words)

theme = figure_theme()
shares, requests = st.columns([3, 2])
shares.markdown("**Figure 2.** Hatched: published. Solid: measured.")
shares.plotly_chart(
    paper.bars(report, theme), theme=None, key="bars", alt=paper_said(report, "token states", " %")
)
with shares:
    marks_key(paper.LEGEND, theme)
requests.markdown("**Figure 13a.** Requests batched at once.")
requests.plotly_chart(
    paper.batched(report, theme), theme=None, key="batched", alt=paper_said(report, "batched", "")
)
if job and job.result:
    for why in sorted(set(report["failed"].values())):
        st.error(f"A run failed: {why}")
    for note in notes(report):
        st.markdown(f"- {note}")
    st.dataframe(table(report), hide_index=True, height="content", placeholder="")
term_links("slot", "breakdown")
st.caption(f"Source: {SOURCE}.")
