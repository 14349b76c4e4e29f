"""The capacity page: what a model's KV cache costs, and how many requests a GPU holds."""

import streamlit as st

from kvviz.capacity.kvshape import KVShape
from kvviz.capacity.plan import Plan
from kvviz.errors import KvvizError
from kvviz.planning.report import (
    UNKNOWN_SIZE,
    checked_shape,
    mix_notes,
    outcome_rows,
    plan_or_none,
)
from kvviz.ui.capacity import Choice, inputs, live_check, measured
from kvviz.ui.style import figure_theme, nothing_yet, page_title
from kvviz.ui.terms import term_links
from kvviz.ui.text import plain
from kvviz.views.capacity_plan import concurrency, gpu_memory, memory_parts
from kvviz.views.findings import concurrency_said, memory_said

theme = figure_theme()
BARE = {"displayModeBar": False}


def chart(figure: dict, key: str, alt: str) -> None:
    st.plotly_chart(figure, theme=None, key=key, config=BARE, alt=alt)


def costs(shape: KVShape, tp: int) -> None:
    """The formulas, with this model's numbers."""
    st.markdown(
        f"One **slot** ({'a token on one of ' + str(tp) + ' GPUs' if tp > 1 else 'a token'}, all "
        f"layers that keep tokens): {shape.slot_formula}"
    )
    if shape.constant_bytes:
        st.markdown(
            f"Of it, a token still **grows** a long request by {shape.grow_formula}; windows and "
            f"states are **constant**, a request: {shape.constant_formula}"
        )
    for warning in shape.warnings:
        st.warning(plain(warning))


def pool(plan: Plan) -> None:
    with st.container(horizontal=True, gap="large"):
        for label, value in (
            ("KV pool, slots", f"{plan.pool_slots:,}"),
            ("Slot, bytes", f"{plan.slot_bytes:,}"),
            ("Longest request", f"{plan.max_len_suggested:,}"),
            (f"At once, of {plan.max_len:,}", f"{plan.concurrency(plan.max_len):,.2f}"),
        ):
            st.metric(label, value, width="content")
    term_links("slot", "need", "block")
    chart(gpu_memory(plan, theme), "memory", memory_said(*memory_parts(plan)))
    for note in plan.notes:
        st.caption(plain(note))


def mix(choice: Choice, plan: Plan) -> None:
    st.header("How many requests of the mix run at once", anchor=False)
    wanted = st.button("Measure", type="primary", key="measure")
    found = measured(choice, plan, wanted)
    if found is None:
        st.caption(
            f"Replays {choice.requests:,} requests of {choice.mix} through each way of handing "
            "memory out, dry (no model, no tensors). It takes some seconds."
        )
        return
    told = found["outcomes"]
    chart(concurrency(told, theme), "concurrency", concurrency_said(told))
    st.caption(
        "Hatched: plain division, modelled. Solid: measured in a dry replay of the engine, with "
        "more requests waiting than fit."
    )
    st.dataframe(outcome_rows(found), hide_index=True, key="outcomes")
    st.caption(
        "Waste: internal + external, of the pool.  \n" + "  \n".join(map(plain, mix_notes(found)))
    )


def live() -> None:
    """The formula against a tensor that exists."""
    with st.expander("Checked against the live model"):
        if not st.button("Allocate and compare", key="check"):
            st.caption("Builds a pool of the model that ships with kvviz and counts its bytes.")
            return
        told = live_check()
        count = told["slots"] * told["slot_bytes"]
        text = (
            f"{told['formula']} a slot. {told['slots']:,} slots × {told['slot_bytes']:,} B = "
            f"{count:,} B; the tensor on {told['device']} has {told['nbytes']:,} B"
        )
        if count == told["nbytes"]:
            st.success(f"{text}: equal.")
        else:
            st.error(f"{text}: they differ.")


page_title(
    "Capacity: what fits on a GPU",
    "What a token of the model costs, what is left for the KV cache, how many requests run in it.",
)
try:
    choice = inputs()
    if choice.config is None:
        nothing_yet(
            "No model yet",
            "Paste a model's config.json in the sidebar, or upload it: what one token costs, how a "
            "GPU's memory is spent and how many requests run at once follow from it.",
        )
        st.stop()
    whole = checked_shape(choice.config, choice.name, choice.kv_dtype)
    costs(whole.on_rank(choice.ask.tp), choice.ask.tp)
    plan = plan_or_none(whole, choice.config, choice.ask)
    if plan is None:
        st.info(UNKNOWN_SIZE.replace("--params 8.03 (in 1e9), or --weights-gib", "Parameters"))
    else:
        pool(plan)
        mix(choice, plan)
    live()
except KvvizError as error:
    st.error(plain(str(error)))
