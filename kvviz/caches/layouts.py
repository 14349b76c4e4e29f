"""Every layout by name. The same dict feeds the select box, the command line and the tests."""

from __future__ import annotations

from collections.abc import Callable

from kvviz.caches.buffers import BuffersLayout
from kvviz.caches.cells import CellsLayout
from kvviz.caches.contiguous import ContiguousLayout
from kvviz.caches.layout import Layout
from kvviz.caches.paged import PagedLayout
from kvviz.config import RunConfig


def cells_layout(config: RunConfig) -> Layout:
    """llama.cpp's cells, shared or split: two kinds of bookkeeping behind one name."""
    return CellsLayout(config) if config.cells.mode == "unified" else BuffersLayout(config)


LAYOUTS: dict[str, Callable[[RunConfig], Layout]] = {
    "contiguous": ContiguousLayout,
    "paged": PagedLayout,
    "cells": cells_layout,
}
