"""The pieces of the replay page: what to replay, how far it is, and what came of it."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from kvviz.caches.layouts import LANES
from kvviz.errors import KvvizError
from kvviz.live.hues import HueBook
from kvviz.model.known import require_known
from kvviz.replay.job import MapJob, ReplayJob
from kvviz.replay.lanes import DEFAULT_LANES, base_of, is_preset, lane_specs
from kvviz.replay.load import STEP_MS, Load, from_trace, load_of
from kvviz.replay.replay import ROWS
from kvviz.replay.sizes import DEFAULT_MODEL, SLOT_BYTES, slot_bytes_of, slots_in
from kvviz.ui.text import plain
from kvviz.views import replay as figures
from kvviz.views.memory_map import map_alt, memory_map
from kvviz.views.theme import THEMES, Theme
from kvviz.workloads.lengths import DEFAULT_MIX, mix_names
from kvviz.workloads.presets import PRESETS
from kvviz.workloads.traces.read import read_trace
from kvviz.workloads.traces.trace import Trace

UPLOAD_MB = 64
MOST_REQUESTS = 1_000_000
MOST_LANES = 6
_FILE, _MIX, _PRESET = "A file of requests", "A fitted mix", "A preset"


@dataclass(frozen=True)
class Order:
    """What the controls say. `upload` is the file's bytes, if the source is one."""

    source: str
    upload: bytes | None
    model: str
    memory_gib: float
    requests: int
    rate: float | None
    step_ms: float
    lanes: tuple[str, ...]


def controls() -> Order | None:
    """The sidebar; an order when the button was pressed."""
    side = st.sidebar
    kind = side.radio("Requests from", (_MIX, _FILE, _PRESET), key="kind")
    upload, source = None, ""
    if kind == _FILE:
        upload = side.file_uploader(
            "File",
            key="file",
            help=f"CSV, JSON or JSON lines, gzip or not, up to {UPLOAD_MB} MB; the format is found "
            "from what is in it. Larger files: `python -m kvviz replay FILE`.",
        )
    elif kind == _MIX:
        names = mix_names()
        source = side.selectbox(
            "Mix", names, names.index(DEFAULT_MIX), key="mix", help="Lengths are not divided."
        )
    else:
        names = [name for name in PRESETS if is_preset(name) and name != "control"]
        source = side.selectbox("Preset", names, key="own", help="With its own pool and engine.")
    requests = side.number_input("Requests, at most", 1, MOST_REQUESTS, 5000, 1000, key="requests")
    rate = side.number_input(
        "Requests a second", 0.0, 10_000.0, 0.0, key="rate", help="0: as recorded."
    )
    step_ms = side.number_input(
        "Step (ms)", 0.1, 10_000.0, STEP_MS, key="step_ms",
        help="Assumed: a dry replay computes no tokens. Arrivals in seconds become steps by it.",
    )  # fmt: skip
    model = side.selectbox(
        "Model", list(SLOT_BYTES), list(SLOT_BYTES).index(DEFAULT_MODEL), key="model"
    )
    memory = side.number_input("KV memory (GiB)", 0.1, 2048.0, 4.0, 1.0, key="memory")
    lanes = side.multiselect(
        "Lanes", list(LANES), list(DEFAULT_LANES), key="lanes", max_selections=MOST_LANES
    )
    own = side.text_area(
        "Lanes with settings of their own", key="own_lanes",
        placeholder="best=contiguous,contiguous.fit=best",
        help="One a line: NAME=LANE,a.b=value,...",
    )  # fmt: skip
    words = (*lanes, *(line.strip() for line in own.splitlines() if line.strip()))
    if not side.button("Replay", type="primary", key="go", width="stretch"):
        return None
    return Order(
        source, upload.getvalue() if upload else None, model, memory, int(requests),
        rate or None, step_ms, words,
    )  # fmt: skip


def start(order: Order) -> tuple[ReplayJob, Trace | None]:
    """A running job, and the trace that was uploaded. Raises KvvizError."""
    if not order.source and order.upload is None:
        raise KvvizError("No file yet: choose one in the sidebar, or a mix.")
    if not order.lanes:
        raise KvvizError("No lane is chosen: choose at least one in the sidebar.")
    slot_bytes = slot_bytes_of(order.model)
    preset = is_preset(order.source)
    slots = None if preset else slots_in(order.memory_gib, slot_bytes)
    trace = None if order.upload is None else read_trace(order.upload)
    load = _load(order, trace, slots or 0)
    specs = lane_specs(order.lanes, base_of(order.source, slots, load.context))
    for spec in specs:
        require_known(spec.config.model)
    return ReplayJob(load, specs, slot_bytes).start(), trace


def _load(order: Order, trace: Trace | None, slots: int) -> Load:
    if trace is None:
        return load_of(
            order.source,
            slots=slots,
            rows=order.requests,
            rate=order.rate,
            step_ms=order.step_ms,
        )
    return from_trace(
        trace, slots=slots, rows=order.requests, rate=order.rate, step_ms=order.step_ms
    )


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
        reasons = "; ".join(f"{n:,} × {plain(why)}" for why, n in trace.set_aside.by_reason.items())
        st.warning(f"{trace.set_aside.count:,} rows were set aside: {reasons}.")
        st.download_button(
            "Rows set aside (CSV)", trace.set_aside.csv(), "set_aside.csv", "text/csv"
        )


def results(report: dict[str, Any]) -> None:
    """Table, charts and downloads."""
    lanes, theme = report["lanes"], page_theme()
    st.subheader("Free, and what the next request could have of it")
    _chart(figures.free_and_admissible(lanes, theme, report["step_ms"]), "free")
    left, right = st.columns(2)
    with left:
        st.subheader("Running")
        _chart(figures.over_trace(lanes, theme, report["step_ms"], "running"), "running")
        st.subheader("First refusals")
        _chart(figures.refusals(lanes, theme), "refusals")
    with right:
        st.subheader("Waiting")
        _chart(figures.over_trace(lanes, theme, report["step_ms"], "waiting"), "waiting")
        st.subheader("Wait for admission")
        _chart(figures.waits(lanes, theme), "waits")
    st.subheader("All numbers")
    table = {name: [_text(read(lane)) for _, read in ROWS] for name, lane in lanes.items()}
    st.dataframe({"": [label for label, _ in ROWS], **table}, hide_index=True, height="content")
    for name, lane in lanes.items():
        if lane["why"]:
            st.caption(f"{plain(name)} ran step by step: {lane['why']} is not done by events.")
    _downloads(lanes)


def the_map(job: ReplayJob) -> None:
    """The memory at any moment: the lane is served that far anew, in a thread."""
    st.subheader("The memory at one moment")
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
    hues = HueBook().update([snapshot])
    _chart(memory_map(snapshot, page_theme(), hues, name=name, ghost=snapshot.head), "map")
    st.caption(map_alt(snapshot, name))


def page_theme() -> Theme:
    """Light or dark, as the browser shows the page."""
    return THEMES["dark" if st.context.theme.type == "dark" else "light"]


def _chart(figure: dict[str, Any], key: str) -> None:
    st.plotly_chart(figure, key=f"chart_{key}", theme=None, config={"displayModeBar": False})


def _downloads(lanes: dict[str, Any]) -> None:
    import pandas

    table = pandas.concat(
        [pandas.DataFrame({"lane": name, **lane["series"]}) for name, lane in lanes.items()]
    )
    parquet = io.BytesIO()
    table.to_parquet(parquet, index=False)
    left, right, _ = st.columns([1, 1, 2])
    left.download_button(
        "Series (CSV)", table.to_csv(index=False), "replay.csv", "text/csv", width="stretch"
    )
    right.download_button("Series (Parquet)", parquet.getvalue(), "replay.parquet", width="stretch")


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or "n/a"
    return f"{value:,}" if isinstance(value, int | np.integer) else f"{value:,.3f}"
