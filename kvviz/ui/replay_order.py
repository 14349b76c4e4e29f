"""What to replay: the sidebar of the replay page, and the job that comes of it.

Every control but the file is in the address, so that a link leads to the same replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from kvviz.caches.layouts import LANES
from kvviz.errors import KvvizError
from kvviz.model.known import require_known
from kvviz.replay.job import ReplayJob
from kvviz.replay.lanes import DEFAULT_LANES, base_of, is_preset, lane_specs
from kvviz.replay.load import STEP_MS, Load, from_trace, load_of
from kvviz.replay.sizes import (
    DEFAULT_GPU,
    DEFAULT_MODEL,
    Pool,
    gpu_names,
    gpu_pool,
    memory_pool,
    model_names,
    slot_bytes_of,
)
from kvviz.ui.own_requests import UPLOAD_MB
from kvviz.workloads.lengths import DEFAULT_MIX, mix_names
from kvviz.workloads.presets import PRESETS
from kvviz.workloads.traces.read import read_trace
from kvviz.workloads.traces.trace import Trace

MOST_REQUESTS = 1_000_000
MOST_LANES = 6
FILE, MIX, PRESET = "A file", "A fitted mix", "A preset"
MEMORY, GPU = "KV memory", "A GPU"


@dataclass(frozen=True)
class Order:
    """What the controls say. `upload` is the file's bytes, if the source is one; `timing` the
    keywords of `load_of` that are of time. `gpu` is empty where memory_gib is the pool."""

    source: str
    upload: bytes | None
    model: str
    memory_gib: float
    gpu: str
    share: float
    tp: int
    requests: int
    timing: dict[str, float | None]
    lanes: tuple[str, ...]

    def pool(self) -> Pool | None:
        """None: the preset has its own."""
        if is_preset(self.source):
            return None
        if self.gpu:
            return gpu_pool(self.model, self.gpu, self.share, self.tp)
        return memory_pool(self.model, self.memory_gib)


def controls() -> tuple[Order, bool]:
    """The sidebar: what it says, and whether its button was pressed."""
    with st.sidebar:
        upload, source = _source()
        requests = st.number_input(
            "Requests, at most", 1, MOST_REQUESTS, 5000, 1000, key="requests", bind=_ADDRESS
        )
        timing = _timing(source)
        model, memory, gpu, share, tp = (
            (DEFAULT_MODEL, 0.0, "", 0.9, 1) if is_preset(source) else _pool()
        )
        st.markdown("**Lanes**")
        lanes = st.multiselect(
            "Lanes", list(LANES), list(DEFAULT_LANES), key="lanes", max_selections=MOST_LANES,
            bind=_ADDRESS,
        )  # fmt: skip
        own = st.text_area(
            "Lanes with settings of their own", key="own_lanes", bind=_ADDRESS,
            placeholder="best=contiguous,contiguous.fit=best",
            help="One a line: NAME=LANE,a.b=value,...",
        )  # fmt: skip
        pressed = st.button("Replay", type="primary", key="go", width="stretch")
    words = (*lanes, *(line.strip() for line in own.splitlines() if line.strip()))
    data = upload.getvalue() if upload else None
    order = Order(source, data, model, memory, gpu, share, tp, int(requests), timing, words)
    return order, pressed


def start(order: Order) -> tuple[ReplayJob, Trace | None]:
    """A running job, and the trace that was uploaded. Raises KvvizError."""
    if not order.source and order.upload is None:
        raise KvvizError("No file yet: choose one in the sidebar, or a mix.")
    if not order.lanes:
        raise KvvizError("No lane is chosen: choose at least one in the sidebar.")
    pool = order.pool()
    with st.spinner("Reading the requests …"):
        trace = None if order.upload is None else read_trace(order.upload)
        load = _load(order, trace, pool.slots if pool else 0)
    specs = lane_specs(order.lanes, base_of(order.source, pool and pool.slots, load.context))
    for spec in specs:
        require_known(spec.config.model)
    if pool is None:
        return ReplayJob(load, specs, slot_bytes_of(order.model)).start(), trace
    return ReplayJob(load.noted(pool.text), specs, pool.slot_bytes).start(), trace


_ADDRESS = "query-params"


def _source() -> tuple[Any, str]:
    """The file that was chosen, or the name of a mix or preset."""
    st.markdown("**Requests**")
    kind = st.radio("Requests from", (MIX, FILE, PRESET), key="kind", bind=_ADDRESS)
    if kind == FILE:
        help = (
            f"CSV, JSON or JSON lines, gzip or not, up to {UPLOAD_MB} MB; the format is found "
            "from what is in it. Larger files: `python -m kvviz replay FILE`."
        )
        return st.file_uploader("File", key="file", help=help, max_upload_size=UPLOAD_MB), ""
    if kind == MIX:
        names = mix_names()
        return None, st.selectbox(
            "Mix", names, names.index(DEFAULT_MIX), key="mix", help="Lengths are not divided.",
            bind=_ADDRESS,
        )  # fmt: skip
    names = [name for name in PRESETS if is_preset(name) and name != "control"]
    return None, st.selectbox(
        "Preset", names, key="own", help="With its own pool and engine.", bind=_ADDRESS
    )


def _timing(source: str) -> dict[str, float | None]:
    step_ms = st.number_input(
        "Step (ms)", 0.1, 10_000.0, STEP_MS, key="step_ms", bind=_ADDRESS,
        help="Assumed: a dry replay computes no tokens. Arrivals in seconds become steps by it.",
    )  # fmt: skip
    if is_preset(source):  # its arrivals are in steps
        return {"step_ms": step_ms}
    rate = st.number_input(
        "Requests a second", 0.0, 10_000.0, 0.0, key="rate", help="0: as recorded.", bind=_ADDRESS
    )
    if source:
        return {"step_ms": step_ms, "rate": rate or None}
    cap = st.number_input(
        "Cut idle gaps to (s)", 0.0, 86_400.0, 0.0, key="cap", bind=_ADDRESS,
        help="0: gaps stay as recorded. How much was taken out is said beside the results.",
    )  # fmt: skip
    spread = st.number_input(
        "Spread equal stamps over (s)", 0.0, 3600.0, 0.0, key="spread", bind=_ADDRESS,
        help="For stamps that are rounded: those of Mooncake's trace are 3 s apart. 0: not done.",
    )  # fmt: skip
    return {
        "step_ms": step_ms,
        "rate": rate or None,
        "cap_s": cap or None,
        "spread_s": spread or None,
    }


def _pool() -> tuple[str, float, str, float, int]:
    """Model, GiB of KV memory, GPU or nothing, its share, GPUs."""
    st.markdown("**Pool**")
    names = model_names()
    model = st.selectbox("Model", names, names.index(DEFAULT_MODEL), key="model", bind=_ADDRESS)
    kind = st.radio("Pool from", (MEMORY, GPU), key="pool", horizontal=True, bind=_ADDRESS)
    if kind == MEMORY:
        memory = st.number_input(
            "KV memory (GiB)", 0.1, 2048.0, 4.0, 1.0, key="memory", bind=_ADDRESS
        )
        return model, memory, "", 0.9, 1
    known = gpu_names()
    gpu = st.selectbox("GPU", known, known.index(DEFAULT_GPU), key="gpu", bind=_ADDRESS)
    share = st.slider(
        "Share for the engine", 0.05, 1.0, 0.9, 0.01, key="share", bind=_ADDRESS,
        help="Of the GPU's memory: what weights and activations leave of it is the pool.",
    )  # fmt: skip
    tp = st.select_slider("GPUs (tensor parallelism)", [1, 2, 4, 8, 16], 1, key="tp", bind=_ADDRESS)
    return model, 0.0, gpu, share, tp


def _load(order: Order, trace: Trace | None, slots: int) -> Load:
    if trace is None:
        return load_of(order.source, slots=slots, rows=order.requests, **order.timing)
    return from_trace(trace, slots=slots, rows=order.requests, **order.timing)
