"""The sidebar: every control is a setting of RunConfig and a parameter of the address.

A widget's default is the chosen preset's value, so the address names the preset and what differs
from it. Choosing another preset resets all controls to it. Options are shown by the names that
the command line takes: Streamlit writes an option into the address as it is shown.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from kvviz.caches.layouts import LANES
from kvviz.config import RunConfig
from kvviz.errors import ConfigError
from kvviz.live.runner import FLAT_OUT
from kvviz.model.known import KNOWN, SHIPPED_NAME
from kvviz.ui.control_tables import CONTROLS, LENGTH_CONTROLS, Control, groups_for
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
LANE_KEYS = ("left", "right")


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
