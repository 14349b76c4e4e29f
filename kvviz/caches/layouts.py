"""Every layout by name, and every lane: a layout with the settings that make it one.

The same dicts feed the select boxes, the command line and the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from kvviz.caches.buffers import BuffersLayout
from kvviz.caches.cells import CellsLayout
from kvviz.caches.contiguous import ContiguousLayout
from kvviz.caches.layout import Layout
from kvviz.caches.paged import PagedLayout
from kvviz.caches.virtual import SHIPPED_SLOT_BYTES, VirtualLayout
from kvviz.config import RunConfig


def cells_layout(config: RunConfig) -> Layout:
    """llama.cpp's cells, shared or split: two kinds of bookkeeping behind one name."""
    return CellsLayout(config) if config.cells.mode == "unified" else BuffersLayout(config)


class MakesLayout(Protocol):
    def __call__(self, config: RunConfig, slot_bytes: int = SHIPPED_SLOT_BYTES) -> Layout:
        """`slot_bytes`: what a slot costs, for layouts whose unit is a size in bytes."""


def _in_slots(layout: Callable[[RunConfig], Layout]) -> MakesLayout:
    """A layout to which it is all the same what a slot costs."""

    def make(config: RunConfig, slot_bytes: int = SHIPPED_SLOT_BYTES) -> Layout:
        return layout(config)

    return make


LAYOUTS: dict[str, MakesLayout] = {
    "contiguous": _in_slots(ContiguousLayout),
    "paged": _in_slots(PagedLayout),
    "cells": _in_slots(cells_layout),
    "virtual": VirtualLayout,
}


class Lane(NamedTuple):
    """`settings` hold in this lane whatever the run says; `like`: who serves so."""

    layout: str
    settings: dict[str, Any]
    like: str


LANES: dict[str, Lane] = {
    "contiguous": Lane("contiguous", {}, "FasterTransformer, Orca: one region a request"),
    "buddy": Lane(
        "contiguous",
        {"contiguous.allocator": "buddy"},
        "the PagedAttention paper's baselines: regions of powers of two",
    ),
    "tlsf": Lane(
        "contiguous",
        {"contiguous.allocator": "tlsf"},
        "real-time heaps: two-level segregated lists, constant time",
    ),
    "split": Lane(
        "cells",
        {"cells.mode": "split"},
        "llama.cpp with a buffer for each sequence: n equal parts",
    ),
    "cells": Lane(
        "cells",
        {"cells.mode": "unified", "cells.placement": "adjacent"},
        "llama.cpp before 2025, one buffer: a batch needs adjacent cells, or is halved",
    ),
    "scattered": Lane(
        "cells",
        {"cells.mode": "unified", "cells.placement": "scattered"},
        "llama.cpp now, one buffer: any free cells will do",
    ),
    "paged": Lane("paged", {}, "vLLM, TensorRT-LLM, TGI: blocks and a block table"),
    "prefix": Lane(
        "paged",
        {"paged.prefix_sharing": True},
        "vLLM with automatic prefix caching: equal prefixes share blocks",
    ),
    "virtual": Lane(
        "virtual",
        {},
        "vAttention: a range of addresses a request, memory mapped by the page",
    ),
}


def lane_config(name: str, config: RunConfig) -> RunConfig:
    """The run's settings as they hold in this lane."""
    return config.replace(LANES[name].settings)
