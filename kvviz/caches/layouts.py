"""Every layout by name. The same dict feeds the select box, the command line and the tests."""

from __future__ import annotations

from collections.abc import Callable

from kvviz.caches.contiguous import ContiguousLayout
from kvviz.caches.layout import Layout
from kvviz.caches.paged import PagedLayout
from kvviz.config import RunConfig

LAYOUTS: dict[str, Callable[[RunConfig], Layout]] = {
    "contiguous": ContiguousLayout,
    "paged": PagedLayout,
}
