"""Hypothesis strategies for sizes, operations, requests and small runs."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from kvviz.config import (
    ADMISSIONS,
    ARRIVALS,
    CELL_MODES,
    COMPACTIONS,
    FITS,
    PLACEMENTS,
    PREEMPTIONS,
    QUEUES,
    RECLAIMS,
    RESERVATIONS,
    VICTIMS,
    RunConfig,
)
from kvviz.records import Region, Request


class Op(NamedTuple):
    """One call of a layout: `pick` chooses among the live requests, `size` is how much."""

    kind: str
    pick: int
    size: int


def sizes(top: int) -> st.SearchStrategy[int]:
    """1 to `top`, with the ends more often than chance would have them."""
    return st.one_of(st.integers(1, top), st.sampled_from([1, max(1, top // 2), top]))


def operations(top: int) -> st.SearchStrategy[list[Op]]:
    """The calls of one step, in order; appends are the most common, as in serving."""
    kinds = st.sampled_from(["append"] * 5 + ["admit"] * 3 + ["release", "reconfigure"])
    return st.lists(st.builds(Op, kinds, st.integers(0, 30), sizes(top)), min_size=3, max_size=9)


@st.composite
def requests(draw: st.DrawFn, id: int, context: int) -> Request:
    """A request whose life fits in the context and whose limit is at least its output."""
    prompt = draw(st.one_of(sizes(context), sizes(max(1, context // 4))))
    output = draw(sizes(context - prompt + 1))
    limit = draw(st.integers(output, context - prompt + 1))
    return Request(id, 0, prompt, output, limit, text=id)


@st.composite
def hole_sizes(draw: st.DrawFn) -> list[int]:
    return draw(st.lists(st.integers(1, 400), max_size=12))


@st.composite
def regions(draw: st.DrawFn) -> list[Region]:
    """Disjoint regions in any order, with gaps of any size between them."""
    at, found = 0, []
    for gap, size in draw(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=12)):
        found.append(Region(at + gap, size))
        at += gap + size
    return draw(st.permutations(found))


MEMORY: dict[str, st.SearchStrategy[Any]] = {
    "contiguous.fit": st.sampled_from(FITS),
    "contiguous.reservation": st.sampled_from(RESERVATIONS),
    "contiguous.compaction": st.sampled_from(COMPACTIONS),
    "paged.block_size": st.sampled_from([1, 2, 3, 7, 16]),
    "cells.placement": st.sampled_from(PLACEMENTS),
    "virtual.reclaim": st.sampled_from(RECLAIMS),
}
"""Settings of the layouts."""

LIVE_MEMORY = {path: s for path, s in MEMORY.items() if path != "paged.block_size"}
"""Those that a running engine takes."""


@st.composite
def run_configs(draw: st.DrawFn) -> RunConfig:
    """Small dry runs under pressure: every policy, every arrival process, tight limits."""
    slots = draw(st.sampled_from([64, 100, 256]))
    changes = draw(
        st.fixed_dictionaries(
            {
                **MEMORY,
                "cells.mode": st.sampled_from(CELL_MODES),
                "cells.buffers": st.sampled_from([1, 3]),
                "mix.arrivals": st.sampled_from(ARRIVALS),
                "mix.trace": st.just("azure-chat-2023"),
                "mix.rate": st.sampled_from([0.1, 0.5, 3.0]),
                "mix.burst": st.sampled_from([1, 5]),
                "mix.concurrency": st.sampled_from([1, 6]),
                "mix.prompts": st.sampled_from(["lognormal", "uniform", "fixed"]),
                "mix.outputs": st.sampled_from(["lognormal", "uniform", "fixed"]),
                "mix.prompt_mean": st.sampled_from([3, 20]),
                "mix.output_mean": st.sampled_from([2, 15]),
                "mix.long_prompt": st.just(45),
                "engine.token_budget": st.sampled_from([1, 9, 64]),
                "engine.max_running": st.sampled_from([1, 4, 32]),
                "mix.samples": st.sampled_from([1, 1, 3]),
                "mix.prefix_share": st.sampled_from([0.0, 0.7]),
                "mix.prefix_tokens": st.sampled_from([5, 16]),
                "mix.prefixes": st.just(2),
                "mix.urgent_share": st.just(0.3),
                "paged.prefix_sharing": st.booleans(),
                "paged.admission": st.sampled_from(ADMISSIONS),
                "paged.watermark": st.sampled_from([0.0, 0.1]),
                "paged.null_block": st.booleans(),
                "engine.chunk": st.sampled_from([0, 4]),
                "engine.victim": st.sampled_from(VICTIMS),
                "engine.preemption": st.sampled_from(PREEMPTIONS),
                "engine.swap_slots": st.sampled_from([0, 30, 4096]),
                "engine.queue": st.sampled_from(QUEUES),
                "engine.queue_limit": st.sampled_from([1, 5, 64]),
                "seed": st.integers(0, 1000),
            }
        )
    )
    if changes["engine.victim"] == "oldest" and changes["paged.admission"] == "chunk":
        changes["engine.victim"] = "youngest"  # that pair is refused
    return RunConfig().replace(
        {"dry": True, "memory.slots": slots, "memory.context": min(slots, 64), **changes}
    )
