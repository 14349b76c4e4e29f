"""The references of the other layouts, and all of them by the layout that they are held against."""

from __future__ import annotations

import numpy as np

from kvviz.caches.buffers import BuffersLayout
from kvviz.caches.cells import CellsLayout
from kvviz.caches.contiguous import ContiguousLayout
from kvviz.caches.paged import PagedLayout
from kvviz.caches.reserved import OS_PAGE
from kvviz.caches.store import KVStore
from kvviz.caches.virtual import VirtualLayout
from kvviz.records import HOLE, Request, Verdict
from tests.caches.reference import Grown, Reference, kind_of
from tests.caches.reference_contiguous import Contiguous
from tests.caches.reference_paged import Paged
from tests.helpers import runs


class Cells(Reference):
    """One row of cells. A claim takes a cell, but only `place` says which one."""

    def largest(self) -> int:
        if self.served.config.cells.placement == "scattered":
            return self._free
        holes = runs(self.served.owners().tolist())
        return min(self._free, max((hole.size for hole in holes), default=0))

    def admit(self, request: Request, tokens: int) -> Verdict:
        need = max(tokens, request.life) if request.life > self.usable else tokens
        kind = kind_of(need, self._free, self._free, self.usable)
        return Verdict(kind, need, self._free, self.largest())

    def append(self, request_id: int, count: int) -> Grown:
        return Grown(kind_of(count, self._free, self._free, self.usable), count, 0)

    def append_each(self, ids: list[int]) -> bool:
        return len(ids) <= self._free

    def placed(self, slots: np.ndarray, parts: list[int]) -> None:
        """Scattered, a batch is one part; adjacent, the cells of each part are neighbours."""
        assert sum(parts) == len(slots)
        if self.served.config.cells.placement == "scattered":
            assert len(parts) <= 1
            return
        assert max(parts, default=0) <= self.served.config.engine.token_budget
        for part in np.split(slots, np.cumsum(parts)[:-1]):
            assert (np.diff(part) == 1).all()

    @property
    def _free(self) -> int:
        layout = self.served.layout
        return self.usable - sum(layout.held(request) for request in self.served.live)


class Buffers(Reference):
    """Equal buffers, one request each."""

    @property
    def longest(self) -> int:
        return self.served.layout.capacity // self.served.config.cells.buffers

    def largest(self) -> int:
        return self.longest if self._free else 0

    def admit(self, request: Request, tokens: int) -> Verdict:
        need = max(self.longest, request.life)
        kind = kind_of(need, self._free, self.largest(), self.longest)
        return Verdict(kind, need, self._free, self.largest())

    def append(self, request_id: int, count: int) -> Grown:
        total = self.served.layout.written(request_id) + count
        assert total <= self.longest, "a request was admitted that outgrows its buffer"
        return Grown(kind_of(count, self.longest, self.longest, self.longest), count, 0)

    @property
    def _free(self) -> int:
        return (self.served.config.cells.buffers - len(self.served.live)) * self.longest


class Virtual(Reference):
    """A range of addresses each, and any free frames under it."""

    @property
    def longest(self) -> int:
        return min(self.usable, self._rounded(self.served.config.memory.context))

    def largest(self) -> int:
        return int((self.served.owners() == HOLE).sum())

    def admit(self, request: Request, tokens: int) -> Verdict:
        need, life = self._rounded(tokens), self._rounded(request.life)
        if life > self.longest:
            need = max(need, life)
        free = self.largest()
        return Verdict(kind_of(need, free, free, self.longest), need, free, free)

    def append(self, request_id: int, count: int) -> Grown:
        layout = self.served.layout
        after = self._rounded(layout.written(request_id) + count)
        need, free = max(0, after - layout.held(request_id)), self.largest()
        return Grown(kind_of(need, free, free, self.usable), need, 0)

    def physical(self, request_id: int) -> np.ndarray:
        layout = self.served.layout
        at = np.arange(layout.written(request_id))
        page = layout.page_slots
        return layout.frames(request_id)[at // page].astype(np.int64) * page + at % page

    def check(self, store: KVStore) -> None:
        """Memory lies under the mapped pages alone, by the system's own account."""
        layout, live = self.served.layout, self.served.live
        page = layout.page_slots * store.slot_bytes
        assert store.mapped_bytes == layout.mapped_pages * page
        held = sum(layout.held(request) for request in live) // layout.page_slots
        assert layout.mapped_pages == held + layout.mapped_unused <= layout.pages
        if self.served.config.virtual.reclaim == "immediate":
            assert layout.mapped_unused == 0
        begins = (np.flatnonzero(store.mapped) * page).tolist()
        of_system = {p for b in begins for p in range(b // OS_PAGE, -(-(b + page) // OS_PAGE))}
        assert store.resident_bytes == len(of_system) * OS_PAGE

    def _rounded(self, slots: int) -> int:
        page = self.served.layout.page_slots
        return -(-slots // page) * page


REFERENCES: dict[type, type[Reference]] = {
    ContiguousLayout: Contiguous,
    PagedLayout: Paged,
    CellsLayout: Cells,
    BuffersLayout: Buffers,
    VirtualLayout: Virtual,
}
