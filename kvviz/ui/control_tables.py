"""Every control of the sidebar: its setting, its place, and when it is of any use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

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
)

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


def groups_for(lanes: Iterable[str]) -> list[tuple[str, tuple[Control, ...]]]:
    """The groups that are of any use to these lanes."""
    layouts = {LANES[name].layout for name in lanes}
    return [(t, controls) for t, controls, owners in GROUPS if not owners or layouts & set(owners)]
