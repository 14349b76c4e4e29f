"""The sidebar: every control is a setting of RunConfig and a parameter of the address.

A widget's default is the chosen preset's value, so the address names the preset and what differs
from it. Choosing another preset resets all controls to it. Options are shown by the names that
the command line takes: Streamlit writes an option into the address as it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from kvviz.caches.layouts import LANES
from kvviz.config import (
    ADMISSIONS,
    ARRIVALS,
    COALESCE,
    COMPACT_BY,
    COMPACTIONS,
    FITS,
    ORDERS,
    PREEMPTIONS,
    QUEUES,
    RECLAIMS,
    RESERVATIONS,
    VICTIMS,
    RunConfig,
)
from kvviz.errors import ConfigError
from kvviz.live.runner import FLAT_OUT
from kvviz.model.known import KNOWN, SHIPPED_NAME
from kvviz.ui.own_requests import (
    TRACE,
    forget_file,
    look_for_file,
    missing_file,
    own_requests,
    trace_control,
)
from kvviz.ui.text import plain
from kvviz.workloads.lengths import DEFAULT_MIX
from kvviz.workloads.presets import DEFAULT_PRESET, PRESETS, preset_config

RESTARTS = " Changing it restarts the run."
SPEEDS = {"2": 2.0, "5": 5.0, "10": 10.0, "20": 20.0, "50": 50.0, "flat out": FLAT_OUT}
POOLS = (2048, 4096, 8192, 16384, 32768, 65536)
BLOCKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (512, 1024, 2048, 4096)
PAGES = tuple(1 << n for n in range(16, 22))
CHUNKS = (0, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Control:
    """One widget. `shown(values)`: is it of any use with these settings?"""

    key: str
    path: str
    label: str
    kind: str
    options: tuple[Any, ...] = ()
    low: float = 0
    high: float = 0
    step: float = 1
    shown: Callable[[dict[str, Any]], bool] = lambda _: True


def _open_loop(v: dict[str, Any]) -> bool:
    return v["mix.arrivals"] != "closed"


ARRIVAL_CONTROLS = (
    Control("arrivals", "mix.arrivals", "Process", "select", ARRIVALS),
    Control(
        "rate",
        "mix.rate",
        "Requests a step",
        "slider",
        low=0.02,
        high=2.0,
        step=0.01,
        shown=_open_loop,
    ),
    Control(
        "burst",
        "mix.burst",
        "Requests in a burst",
        "slider",
        low=1,
        high=64,
        shown=lambda v: v["mix.arrivals"] == "bursts",
    ),
    Control(
        "conc",
        "mix.concurrency",
        "Requests in the system",
        "slider",
        low=1,
        high=128,
        shown=lambda v: v["mix.arrivals"] == "closed",
    ),
)
LENGTH_CONTROLS = (
    Control(
        "prompts",
        "mix.prompts",
        "Prompt lengths",
        "select",
        ("lognormal", "uniform", "fixed", "trace"),
    ),
    Control(
        "prompt",
        "mix.prompt_mean",
        "Mean prompt (tokens)",
        "slider",
        low=16,
        high=1024,
        step=8,
        shown=lambda v: v["mix.prompts"] != "trace",
    ),
    Control(
        "outputs",
        "mix.outputs",
        "Output lengths",
        "select",
        ("lognormal", "uniform", "fixed", "trace"),
    ),
    Control(
        "output",
        "mix.output_mean",
        "Mean output (tokens)",
        "slider",
        low=1,
        high=512,
        step=1,
        shown=lambda v: v["mix.outputs"] != "trace",
    ),
    Control(
        "spread",
        "mix.spread",
        "Spread (std / mean)",
        "slider",
        low=0.0,
        high=2.0,
        step=0.05,
        shown=lambda v: (
            v["mix.prompts"] in ("lognormal", "uniform")
            or v["mix.outputs"] in ("lognormal", "uniform")
        ),
    ),
    Control(
        "long", "mix.long_share", "Share of long requests", "slider", low=0.0, high=1.0, step=0.01
    ),
    Control(
        "longlen",
        "mix.long_prompt",
        "Long prompt (tokens)",
        "slider",
        low=128,
        high=4096,
        step=64,
        shown=lambda v: v["mix.long_share"] > 0,
    ),
)
SHARING_CONTROLS = (
    Control(
        "prefixed",
        "mix.prefix_share",
        "Share with a system prompt",
        "slider",
        low=0.0,
        high=1.0,
        step=0.05,
    ),
    Control(
        "prefixlen",
        "mix.prefix_tokens",
        "System prompt (tokens)",
        "slider",
        low=16,
        high=1024,
        step=16,
        shown=lambda v: v["mix.prefix_share"] > 0,
    ),
    Control(
        "prefixes",
        "mix.prefixes",
        "Different system prompts",
        "slider",
        low=1,
        high=32,
        shown=lambda v: v["mix.prefix_share"] > 0,
    ),
    Control("samples", "mix.samples", "Answers for each prompt", "slider", low=1, high=8),
    Control(
        "urgent",
        "mix.urgent_share",
        "Share of high priority",
        "slider",
        low=0.0,
        high=1.0,
        step=0.05,
        shown=lambda v: v["engine.victim"] == "priority",
    ),
)
POOL_CONTROLS = (
    Control("pool", "memory.slots", "Pool (slots)", "steps", POOLS),
    Control("context", "memory.context", "Context (longest request)", "steps", CONTEXTS),
    Control("seed", "seed", "Seed", "number", low=0, high=2**31 - 1),
)
CONTIGUOUS_CONTROLS = (
    Control("fit", "contiguous.fit", "Fit", "select", FITS),
    Control("reserve", "contiguous.reservation", "Reservation", "select", RESERVATIONS),
    Control("merge", "contiguous.coalesce", "Free neighbours merge", "select", COALESCE),
    Control("order", "contiguous.order", "Free list", "select", ORDERS),
    Control("compact", "contiguous.compaction", "Compaction", "select", COMPACTIONS),
    Control(
        "compactby",
        "contiguous.compact_by",
        "Compact by",
        "select",
        COMPACT_BY,
        shown=lambda v: v["contiguous.compaction"] == "on_refusal",
    ),
    Control(
        "wasted",
        "contiguous.compact_share",
        "Wasted share that starts it",
        "slider",
        low=0.02,
        high=0.8,
        step=0.02,
        shown=lambda v: v["contiguous.compaction"] == "threshold",
    ),
    Control(
        "steady",
        "contiguous.compact_slots",
        "Slots moved a step",
        "slider",
        low=16,
        high=2048,
        step=16,
        shown=lambda v: v["contiguous.compaction"] == "steady",
    ),
)
PAGED_CONTROLS = (
    Control("block", "paged.block_size", "Block size (slots)", "steps", BLOCKS),
    Control("admit", "paged.admission", "Admission looks at", "select", ADMISSIONS),
    Control(
        "watermark",
        "paged.watermark",
        "Watermark (share kept free)",
        "slider",
        low=0.0,
        high=0.5,
        step=0.01,
    ),
)
CELLS_CONTROLS = (Control("buffers", "cells.buffers", "Buffers (split)", "slider", low=1, high=64),)
VIRTUAL_CONTROLS = (
    Control("page", "virtual.page_bytes", "Page (bytes)", "steps", PAGES),
    Control("reclaim", "virtual.reclaim", "Pages go back", "select", RECLAIMS),
)
SCHEDULER_CONTROLS = (
    Control("queue", "engine.queue", "When the head finds no place", "select", QUEUES),
    Control("victim", "engine.victim", "Who gives way", "select", VICTIMS),
    Control("preempt", "engine.preemption", "A victim's K and V", "select", PREEMPTIONS),
    Control("chunk", "engine.chunk", "Prefill chunk (0: no limit)", "steps", CHUNKS),
)
# (title, controls, the layouts that they belong to: none for all)
GROUPS: tuple[tuple[str, tuple[Control, ...], tuple[str, ...]], ...] = (
    ("Arrivals", ARRIVAL_CONTROLS, ()),
    ("Lengths", LENGTH_CONTROLS, ()),
    ("Memory", POOL_CONTROLS, ()),
    ("Contiguous", CONTIGUOUS_CONTROLS, ("contiguous",)),
    ("Paged", PAGED_CONTROLS, ("paged",)),
    ("Cells", CELLS_CONTROLS, ("cells",)),
    ("Virtual", VIRTUAL_CONTROLS, ("virtual",)),
    ("Scheduler", SCHEDULER_CONTROLS, ()),
    ("Prefixes and samples", SHARING_CONTROLS, ()),
)
CONTROLS = tuple(control for _, controls, _ in GROUPS for control in controls)
LANE_KEYS = ("left", "right")


def groups_for(lanes: Iterable[str]) -> list[tuple[str, tuple[Control, ...]]]:
    """The groups that are of any use to these lanes."""
    layouts = {LANES[name].layout for name in lanes}
    return [(t, controls) for t, controls, owners in GROUPS if not owners or layouts & set(owners)]


def sidebar() -> tuple[RunConfig | None, float]:
    """Draw the controls. (settings, or None when they contradict; steps a second)"""
    look_for_file()
    with st.sidebar:
        preset = _preset()
        base = preset_config(preset)
        values = {path: value for path, value, _ in base.walk()}
        chosen = dict(values)
        st.caption(f"{PRESETS[preset].title}. {PRESETS[preset].story}")
        chosen["lanes"] = ",".join(_lanes(base.lane_names))
        chosen["model"] = _model(base.model)
        for title, controls in groups_for(chosen["lanes"].split(",")):
            st.markdown(f"**{title}**")
            for control in controls:
                if control.shown(chosen):
                    chosen[control.path] = _draw(control, values[control.path])
            if controls is LENGTH_CONTROLS:
                if "trace" in (
                    chosen["mix.prompts"],
                    chosen["mix.outputs"],
                    chosen["mix.arrivals"],
                ):
                    chosen["mix.trace"] = trace_control(base.mix.trace)
                own_requests()
        speed = st.select_slider(
            "Steps a second",
            list(SPEEDS),
            value="10",
            key="speed",
            bind="query-params",
            help="How fast the lanes are stepped, at most.",
        )
        return _config(base, chosen), SPEEDS[speed]


def _preset() -> str:
    return st.selectbox(
        "Preset",
        list(PRESETS),
        index=list(PRESETS).index(DEFAULT_PRESET),
        key="preset",
        bind="query-params",
        on_change=_forget_controls,
    )


def _lanes(default: tuple[str, ...]) -> list[str]:
    """The two lanes side by side; choosing the other one's layout swaps them."""
    for key, name in zip(LANE_KEYS, default, strict=False):
        st.session_state.setdefault(f"last-{key}", name)
    options = list(LANES)
    chosen = [
        st.selectbox(
            f"{key.capitalize()} lane",
            options,
            index=options.index(name),
            key=key,
            bind="query-params",
            on_change=_swap_if_equal,
            args=(key,),
            help="\n".join(f"- {n}: {lane.like}" for n, lane in LANES.items()),
        )
        for key, name in zip(LANE_KEYS, default, strict=False)
    ]
    if chosen[0] == chosen[1]:  # an address may name one layout twice
        chosen[1] = next(name for name in LANES if name != chosen[0])
    for key, name in zip(LANE_KEYS, chosen, strict=True):
        st.session_state[f"last-{key}"] = name
    return chosen


def _swap_if_equal(key: str) -> None:
    other = LANE_KEYS[1 - LANE_KEYS.index(key)]
    if st.session_state[key] == st.session_state.get(other):
        st.session_state[other] = st.session_state[f"last-{key}"]


def _model(default: str) -> str:
    """A model by name, where what it is made from is installed."""
    names = {model.name or SHIPPED_NAME: model for model in KNOWN.values()}
    name = st.selectbox(
        "Model",
        list(names),
        index=list(names).index(default or SHIPPED_NAME),
        key="model",
        bind="query-params",
        help="\n".join(f"- {name}: {model.title}" for name, model in names.items()) + RESTARTS,
    )
    missing = names[name].missing()
    if missing:
        st.warning(missing)
        return default
    return names[name].name


def _forget_controls() -> None:
    """Another preset: every control goes to its value there."""
    forget_file()
    values = {path: value for path, value, _ in preset_config(st.session_state.preset).walk()}
    for control in CONTROLS:
        if control.key in st.session_state:
            st.session_state[control.key] = values[control.path]
    if TRACE in st.session_state:
        st.session_state[TRACE] = values["mix.trace"] or DEFAULT_MIX
    if "model" in st.session_state:
        st.session_state["model"] = values["model"] or SHIPPED_NAME
    for key, name in zip(LANE_KEYS, values["lanes"].split(","), strict=False):
        if key in st.session_state:
            st.session_state[key] = name


def _draw(control: Control, default: Any) -> Any:
    """The widget; its value."""
    meta = _META[control.path]
    help = meta["help"][0].upper() + meta["help"][1:] + "."
    common = {
        "key": control.key,
        "bind": "query-params",
        "help": help + ("" if meta["live"] else RESTARTS),
    }
    if control.kind == "select":
        options = list(control.options)
        return st.selectbox(control.label, options, index=options.index(default), **common)
    if control.kind == "steps":
        return st.select_slider(control.label, list(control.options), value=default, **common)
    kind = type(default)
    low, high = kind(control.low), kind(control.high)
    if control.kind == "number":
        return st.number_input(control.label, low, high, value=default, **common)
    return st.slider(control.label, low, high, value=default, step=kind(control.step), **common)


_META = {path: meta for path, _, meta in RunConfig().walk()}


def _config(base: RunConfig, chosen: dict[str, Any]) -> RunConfig | None:
    """Settings from the widgets; says in the sidebar what contradicts."""
    if missing := missing_file():
        st.error(plain(missing))
        return None
    try:
        return base.replace({path: chosen[path] for path in chosen})
    except ConfigError as error:
        st.error(plain(str(error)))
        return None
