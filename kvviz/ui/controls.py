"""The sidebar: every control is a setting of RunConfig and a parameter of the address.

A widget's default is the chosen preset's value, so the address names the preset and what differs
from it. Choosing another preset resets all controls to it. Options are shown by the names that
the command line takes: Streamlit writes an option into the address as it is shown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from kvviz.config import (
    ARRIVALS,
    COMPACTIONS,
    FITS,
    ON_REFUSAL,
    RESERVATIONS,
    RunConfig,
)
from kvviz.errors import ConfigError
from kvviz.live.runner import FLAT_OUT
from kvviz.workloads.lengths import DEFAULT_MIX
from kvviz.workloads.presets import DEFAULT_PRESET, PRESETS, preset_config

RESTARTS = " Changing it restarts the run."
SPEEDS = {"2": 2.0, "5": 5.0, "10": 10.0, "20": 20.0, "50": 50.0, "flat out": FLAT_OUT}
POOLS = (2048, 4096, 8192, 16384, 32768, 65536)
BLOCKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (512, 1024, 2048, 4096)


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
MEMORY_CONTROLS = (
    Control("pool", "memory.slots", "Pool (slots)", "steps", POOLS),
    Control("context", "memory.context", "Context (longest request)", "steps", CONTEXTS),
    Control("fit", "contiguous.fit", "Contiguous: fit", "select", FITS),
    Control("reserve", "contiguous.reservation", "Contiguous: reservation", "select", RESERVATIONS),
    Control("compact", "contiguous.compaction", "Contiguous: compaction", "select", COMPACTIONS),
    Control("block", "paged.block_size", "Paged: block size (slots)", "steps", BLOCKS),
    Control("refused", "engine.on_refusal", "A refused request", "select", ON_REFUSAL),
    Control("seed", "seed", "Seed", "number", low=0, high=2**31 - 1),
)
CONTROLS = ARRIVAL_CONTROLS + LENGTH_CONTROLS + MEMORY_CONTROLS


def sidebar() -> tuple[RunConfig | None, float]:
    """Draw the controls. (settings, or None when they contradict; steps a second)"""
    with st.sidebar:
        preset = _preset()
        base = preset_config(preset)
        values = {path: value for path, value, _ in base.walk()}
        chosen = dict(values)
        st.caption(f"{PRESETS[preset].title}. {PRESETS[preset].story}")
        for title, controls in (
            ("Arrivals", ARRIVAL_CONTROLS),
            ("Lengths", LENGTH_CONTROLS),
            ("Memory", MEMORY_CONTROLS),
        ):
            st.markdown(f"**{title}**")
            for control in controls:
                if control.shown(chosen):
                    chosen[control.path] = _draw(control, values[control.path])
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


def _forget_controls() -> None:
    """Another preset: every control goes to its value there."""
    values = {path: value for path, value, _ in preset_config(st.session_state.preset).walk()}
    for control in CONTROLS:
        if control.key in st.session_state:
            st.session_state[control.key] = values[control.path]


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
    kinds = (chosen["mix.arrivals"], chosen["mix.prompts"], chosen["mix.outputs"])
    if "trace" in kinds and not chosen["mix.trace"]:
        chosen["mix.trace"] = DEFAULT_MIX
    try:
        return base.replace({path: chosen[path] for path in chosen})
    except ConfigError as error:
        st.error(str(error))
        return None
