"""The pieces of the replay page: how far a replay is, and what came of it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import streamlit as st

from kvviz.live.hues import HueBook
from kvviz.replay.job import MapJob, ReplayJob
from kvviz.replay.replay import ROWS
from kvviz.ui.jobs import desk
from kvviz.ui.style import figure_theme, marks_key
from kvviz.ui.terms import term_links
from kvviz.ui.text import plain
from kvviz.views import findings as said
from kvviz.views import replay as figures
from kvviz.views.memory_map import legend, map_alt, memory_map
from kvviz.views.theme import Theme
from kvviz.workloads.traces.trace import Trace


@st.fragment(run_every=0.5)
def progress(job: ReplayJob) -> None:
    """A bar with the time left, and a way out; the page runs anew when the job ends."""
    if not job.running:
        st.rerun()
    now = job.progress
    left = "compiling, or just begun" if now.seconds_left is None else _time(now.seconds_left)
    st.progress(now.done / max(now.of, 1), f"{plain(now.lane)}: {now.done:,} of {now.of:,}, {left}")
    if st.button("Cancel", key="cancel"):
        job.cancel()


def _time(seconds: float) -> str:
    return f"{seconds:,.0f} s left" if seconds < 120 else f"{seconds / 60:,.0f} min left"


def about(job: ReplayJob, trace: Trace | None) -> None:
    """What was read, and what was done to it."""
    found = job.load.about
    span = "" if found["span_s"] is None else f", {found['span_s']:,.0f} s"
    units = "" if trace is None else f" (arrivals: {plain(trace.units['arrival'])})"
    st.caption(
        f"**Dry**: memory only, no tokens are computed. {found['rows']:,} requests, "
        f"{found['format']}{units}, {found['prompt_tokens']:,} + {found['output_tokens']:,} tokens"
        f"{span}; steps of {job.load.step_ms:g} ms are assumed; context {job.load.context:,}. "
        + plain(" ".join(job.load.notes))
    )
    if trace is not None and trace.set_aside.count:
        st.warning(plain(trace.set_aside.words))
        st.download_button(
            "Rows set aside (CSV)", trace.set_aside.csv(), "set_aside.csv", "text/csv"
        )


def results(report: dict[str, Any]) -> None:
    """Table, charts and downloads."""
    lanes, theme = report["lanes"], figure_theme()
    st.header("Free, and what the next request could have of it")
    gap = figures.free_and_admissible(lanes, theme, report["step_ms"])
    _chart(gap, "free", said.admissible_said(lanes))
    left, right = st.columns(2)
    with left:
        st.header("Running")
        _over_trace(report, theme, "running")
        st.header("First refusals")
        _chart(figures.refusals(lanes, theme), "refusals", said.refusals_said(lanes))
    with right:
        st.header("Waiting")
        _over_trace(report, theme, "waiting")
        st.header("Wait for admission")
        _chart(figures.waits(lanes, theme), "waits", said.waits_said(lanes))
    st.header("All numbers")
    table = {name: [_text(read(lane)) for _, read in ROWS] for name, lane in lanes.items()}
    st.dataframe({"": [label for label, _ in ROWS], **table}, hide_index=True, height="content")
    term_links(
        "verdict", "false refusal", "admissible now", "slot usage and block usage", "breakdown",
        "external fragmentation",
    )  # fmt: skip
    for name, lane in lanes.items():
        if lane["why"]:
            st.caption(f"{plain(name)} ran step by step: {lane['why']} is not done by events.")
    _downloads(lanes)


def _over_trace(report: dict[str, Any], theme: Theme, name: str) -> None:
    lanes = report["lanes"]
    figure = figures.over_trace(lanes, theme, report["step_ms"], name)
    _chart(figure, name, said.over_trace_said(lanes, name))


def the_map(job: ReplayJob) -> None:
    """The memory at any moment: the lane is served that far anew, in a thread."""
    st.header("The memory at one moment")
    names = {spec.name: spec for spec in job.specs}
    name = st.segmented_control(
        "Lane", list(names), default=next(iter(names)), key="map_lane", format_func=plain
    )
    if name is None:
        return
    last = job.report["lanes"][name]["steps"]
    seconds = job.load.step_ms / 1000
    if last < 2:
        return
    step = st.slider("Step", 1, last, max(1, last // 2), key=f"map_step_{name}")
    found: MapJob | None = st.session_state.get("map_job")
    if found is None or (found.name, found.step) != (name, step):
        found = MapJob(job.load, names[name], job.slot_bytes, step)
        st.session_state["map_job"] = found
        desk().keep("map", found)
        found.join(0.3)
    st.caption(f"After step {step:,} of {last:,}, {step * seconds:,.1f} s into the trace.")
    _drawn(found, name)


@st.fragment(run_every=0.5)
def _waiting_for(found: MapJob) -> None:
    if not found.running:
        st.rerun()
    st.caption("Serving up to there …")


def _drawn(found: MapJob, name: str) -> None:
    if found.running:
        _waiting_for(found)
        return
    snapshot = found.snapshot
    if snapshot is None:
        st.error("The map can't be drawn: see the server's log.")
        return
    hues, theme = HueBook().update([snapshot]), figure_theme()
    alt = map_alt(snapshot, name)
    _chart(memory_map(snapshot, theme, hues, name=name, ghost=snapshot.head), "map", alt)
    marks_key(legend(snapshot), theme)
    st.caption(alt)


def _chart(figure: dict[str, Any], key: str, alt: str) -> None:
    config = {"displayModeBar": False}
    st.plotly_chart(figure, key=f"chart_{key}", theme=None, config=config, alt=alt)


def _downloads(lanes: dict[str, Any]) -> None:
    """All numbers, a row a lane; and the series, a row a lane and sample."""
    import pandas

    numbers = pandas.DataFrame(
        [
            {"lane": name} | {label: read(lane) for label, read in ROWS}
            for name, lane in lanes.items()
        ]
    )
    series = pandas.concat(
        [pandas.DataFrame({"lane": name, **lane["series"]}) for name, lane in lanes.items()]
    )
    for column, (label, table, file) in zip(
        st.columns(2),
        (("Numbers", numbers, "replay"), ("Series", series, "replay_series")),
        strict=True,
    ):
        parquet = io.BytesIO()
        table.to_parquet(parquet, index=False)
        with column, st.container(horizontal=True):
            st.download_button(
                f"{label} (CSV)", table.to_csv(index=False), f"{file}.csv", "text/csv"
            )
            st.download_button(f"{label} (Parquet)", parquet.getvalue(), f"{file}.parquet")


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or "n/a"
    if isinstance(value, int | np.integer):
        return f"{value:,}"
    return f"{value:,.3f}" if value < 1000 else f"{value:,.0f}"
