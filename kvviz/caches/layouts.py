"""Every layout by name, and every lane: a layout with the settings that make it one.

The same dicts feed the select boxes, the command line and the tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kvviz.caches.contiguous import ContiguousLayout
from kvviz.caches.layout import Layout
from kvviz.caches.paged import PagedLayout
from kvviz.config import RunConfig

LAYOUTS: dict[str, Callable[[RunConfig], Layout]] = {
    "contiguous": ContiguousLayout,
    "paged": PagedLayout,
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
    "paged": Lane("paged", {}, "vLLM, TensorRT-LLM, TGI: blocks and a block table"),
    "prefix": Lane(
        "paged",
        {"paged.prefix_sharing": True},
        "vLLM with automatic prefix caching: equal prefixes share blocks",
    ),
}


def lane_config(name: str, config: RunConfig) -> RunConfig:
    """The run's settings as they hold in this lane."""
    return config.replace(LANES[name].settings)
