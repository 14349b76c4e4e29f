"""Every layout by name. The same dict feeds the select box, the command line and the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kvviz.caches.contiguous import ContiguousLayout
from kvviz.caches.layout import Layout
from kvviz.caches.paged import PagedLayout
from kvviz.caches.virtual import SHIPPED_SLOT_BYTES, VirtualLayout
from kvviz.config import RunConfig


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
    "virtual": VirtualLayout,
}
