"""The capacity page's inputs, its one measurement a plan, and the check against real tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from kvviz.build import build_lanes
from kvviz.capacity.fields import parse_config
from kvviz.capacity.kvshape import KV_DTYPES
from kvviz.capacity.plan import WEIGHTS, Ask, Plan
from kvviz.capacity.presets import gpus, model, models, preset_named
from kvviz.capacity.reader import read_shape
from kvviz.config import RunConfig
from kvviz.planning.measure import measure
from kvviz.ui.server import hub
from kvviz.workloads.presets import DEFAULT_PRESET, PRESETS

OWN = "config.json"
DEFAULT_MODEL, DEFAULT_GPU = "Llama-3.1-8B", "H100 80G"
TPS = (1, 2, 4, 8, 16)
BLOCKS = (1, 8, 16, 32, 64, 128, 256)
BATCHES = (512, 2048, 4096, 8192, 16384, 32768)
REQUESTS = (50, 100, 200, 500, 1000)
LIVE_SLOTS = 1024


@dataclass(frozen=True)
class Choice:
    """What the sidebar says. config is None while none was given."""

    name: str
    config: Mapping[str, Any] | None
    kv_dtype: str
    ask: Ask
    mix: str
    requests: int


def inputs() -> Choice:
    """Draw the controls. Raises ConfigError for a config that can't be read."""
    with st.sidebar:
        name, config = _which_model()
        known = preset_named(name)
        st.markdown("**GPU**")
        gpu = _select("GPU", list(gpus()), DEFAULT_GPU, "gpu")
        share = st.slider(
            "Share for the engine", 0.05, 1.0, 0.9, 0.01, key="share", bind="query-params",
            help="Of the GPU's memory, for weights, activations and the KV pool together.",
        )  # fmt: skip
        tp = _steps("GPUs (tensor parallelism)", TPS, 1, "tp",
                    "Weights and KV heads are split; every number is of one GPU.")  # fmt: skip
        st.markdown("**Precision**")
        weights = _select("Weights", list(WEIGHTS), known.weights if known else "bf16", "weights")
        kv_dtype = _select("KV cache", ["auto", *KV_DTYPES], "auto", "kv")
        billions = st.number_input(
            "Parameters (1e9; 0: count them)", 0.0, 1e6,
            known.parameters / 1e9 if known else 0.0, key="params",
            help="All of them, experts included.",
        )  # fmt: skip
        st.markdown("**Serving**")
        ask = Ask(
            gpu_gib=gpus()[gpu],
            share=share,
            tp=tp,
            weights=weights,
            parameters=billions * 1e9 or None,
            block_size=_steps("Block size (slots)", BLOCKS, 16, "units"),
            batch_tokens=_steps("Tokens of the largest step", BATCHES, 8192, "batch",
                                "Its activations are set aside."),
            max_len=st.number_input(
                "max_len (0: the longest that fits)", 0, 1 << 30, 0, key="maxlen",
                bind="query-params", help="Longest request: prompt + output - 1.",
            ) or None,
        )  # fmt: skip
        st.markdown("**Mix**")
        mix = _select("Preset", list(PRESETS), DEFAULT_PRESET, "mix")
        requests = _steps("Requests replayed", REQUESTS, 200, "requests")
        return Choice(name, config, kv_dtype, ask, mix, requests)


def measured(choice: Choice, plan: Plan, wanted: bool) -> Mapping[str, Any] | None:
    """The last measurement of this very plan and mix, or a new one when it is wanted."""
    key = (plan, choice.mix, choice.requests)
    if wanted:
        bar = st.progress(0.0, "replaying")
        found = measure(plan, choice.mix, requests=choice.requests,
                        progress=lambda share, what: bar.progress(share, what))  # fmt: skip
        bar.empty()
        st.session_state["capacity-measured"] = (key, found.as_dict())
    kept, found = st.session_state.get("capacity-measured", (None, None))
    return found if kept == key else None


@st.cache_data(show_spinner="Allocating a pool of the live model …")
def live_check() -> dict[str, Any]:
    """A lane of the shipped model, built as the live page builds it: what its tensors take beside
    slots x slot_bytes of the same reader. Raises KvvizError."""
    backend = hub().backend()
    config = RunConfig().replace(
        {"lanes": "paged", "memory.slots": LIVE_SLOTS, "memory.context": LIVE_SLOTS}
    )
    lanes = build_lanes(config, backend)
    try:
        store = lanes.engines["paged"].forward.store
        dtype = {2: "bf16", 4: "fp32"}[store.dtype.itemsize]
        shape = read_shape(vars(backend.model.shape), kv_dtype=dtype)
        return {
            "slots": store.slots,
            "slot_bytes": shape.slot_bytes,
            "formula": shape.slot_formula,
            "nbytes": store.nbytes,
            "device": backend.device_name,
        }
    finally:
        lanes.close()


def _which_model() -> tuple[str, Mapping[str, Any] | None]:
    st.markdown("**Model**")
    chosen = _select("Model", [*models(), OWN], DEFAULT_MODEL, "model",
                     on_change=_take_what_follows)  # fmt: skip
    if chosen != OWN:
        known = model(chosen)
        st.caption(f"Figures: {known.source}.")
        return known.name, known.config
    file = st.file_uploader("A model's config.json", type="json", key="config-file")
    text = st.text_area("or paste it", key="config-text", placeholder="{ … }", height=120)
    if file is not None:
        text = file.getvalue().decode("utf-8-sig", errors="replace")
    if not text.strip():
        return "", None
    config = parse_config(text)
    name = config.get("_name_or_path")
    return name if isinstance(name, str) else "", config


def _take_what_follows() -> None:
    """Parameters and precision belong to the model."""
    known = preset_named(st.session_state.model)
    st.session_state.params = known.parameters / 1e9 if known else 0.0
    st.session_state.weights = known.weights if known else "bf16"


def _select(label: str, options: list[str], default: str, key: str, **more: Any) -> str:
    return st.selectbox(
        label, options, index=options.index(default), key=key, bind="query-params", **more
    )


def _steps(label: str, options: tuple[int, ...], default: int, key: str, help: str = "") -> int:
    return st.select_slider(
        label, list(options), value=default, key=key, bind="query-params", help=help or None
    )
