"""Virtually contiguous layout: a range of addresses for each request, and memory by the page.

    addresses   |0 1 2 3 4 5 6 . . . . .|. . . . . . . . . . . .|     ranges of 12 slots, pages of 4
    mapped      |frame 9 |frame 2 |     |        |        |     |     7 tokens hold two frames

Addresses cost nothing, so every request gets enough of them for the longest one; memory is mapped
under them as tokens come. A request lies in one piece, as in the contiguous layout, and any free
frame will do, as in the paged one: a refusal is never `fragmented`. What it wastes is the tail of
each sequence's last page, and pages are large. (vAttention, ASPLOS 2025.)

`virtual.reclaim`: a released request's pages go back at once (`immediate`), or stay under their
range for the next request that gets it (`deferred`): mapping costs more than writing. They still
count as free, and are taken away, oldest range first and last page first, when frames run short.

Frame numbers are this layout's own: which physical page lies under an address is known to the
system alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz.caches.layout import AddressTable, Entry, Journal, classify
from kvviz.caches.ranges import Ranges
from kvviz.config import MOST_RUNNING, RunConfig
from kvviz.errors import ConfigError
from kvviz.records import ADMITTED, HOLE, RESERVED, Columns, Request, Verdict
from kvviz.shapes import ModelShape

SHIPPED_SLOT_BYTES = ModelShape().slot_bytes(4)


@dataclass(slots=True)
class _Holding:
    line: int
    written: int


class VirtualLayout:
    """See `caches.layout.Layout`. `slots`, `table` and the journal are virtual slots, `columns`
    are physical ones: a row for each frame.

    page_slots: slots in a page; pages: physical frames; virtual_slots: addresses that the store
    must reserve. Slots behind the last whole frame are never used. Raises ConfigError when the
    pool holds no page.
    """

    paged = True
    copies_on_write = False

    def __init__(self, config: RunConfig, slot_bytes: int = SHIPPED_SLOT_BYTES) -> None:
        self.capacity = config.memory.slots
        self.grain = self.page_slots = max(1, config.virtual.page_bytes // slot_bytes)
        self.pages = self.capacity // self.page_slots
        if not self.pages:
            raise ConfigError(
                f"a page of {config.virtual.page_bytes:,} bytes holds {self.page_slots:,} slots, "
                f"and the pool has {self.capacity:,}. Lower virtual.page_bytes or raise "
                "memory.slots."
            )
        # Who runs holds a page at least, so there are never more ranges in use than pages.
        lines = min(self.pages, MOST_RUNNING)
        width = self._whole_pages(config.memory.context)
        self._ranges = Ranges(lines, width, self.page_slots, self.pages)
        self.virtual_slots = lines * self._ranges.slots
        self.table = AddressTable(piece=self._ranges.slots)
        self._held: dict[int, _Holding] = {}
        self._keeps = config.virtual.reclaim == "deferred"

    def reconfigure(self, config: RunConfig) -> None:
        """`virtual.reclaim` holds from now on; kept pages go back when it says so."""
        self._keeps = config.virtual.reclaim == "deferred"
        if not self._keeps:
            self._ranges.reclaim(self.mapped_unused)

    @property
    def range_slots(self) -> int:
        """Addresses of one request: the context in whole pages."""
        return self._ranges.slots

    @property
    def mapped_pages(self) -> int:
        """Pages with physical memory under them, kept ones included."""
        return int(self._ranges.mapped.sum())

    @property
    def mapped_unused(self) -> int:
        """Pages kept mapped that no request holds. They count as free."""
        return self._ranges.kept

    @property
    def usable(self) -> int:
        """Slots in whole frames."""
        return self.pages * self.page_slots

    @property
    def free(self) -> int:
        return self._ranges.free_pages * self.page_slots

    @property
    def admissible(self) -> int:
        """All that is free. (A range holds no more than the context, but no lane is asked for
        more, and the lanes' curves must mean the same.)"""
        return self.free

    def fits(self, count: int) -> bool:
        return self._rounded(count) <= self.free

    def need(self, request: Request, tokens: int) -> int:
        return self._rounded(tokens)

    def question(self, request: Request, tokens: int) -> Verdict:
        need = self.need(request, tokens)
        # A life that can't ever fit, in the pool or in a range, is told at once.
        longest = min(self.usable, self.range_slots)
        if self._rounded(request.life) > longest:
            need = max(need, self._rounded(request.life))
        return classify(need, self.free, self.free, longest)

    def admit(self, request: Request, tokens: int) -> Verdict:
        verdict = self.question(request, tokens)
        if verdict.admitted:
            line = self._ranges.open()
            self._held[request.id] = _Holding(line, 0)
            self.table.open(request.id)
            self.table.put(request.id, 0, self._ranges.start(line))
            self._ranges.hold(line, verdict.need // self.page_slots)
        return verdict

    def append(self, request_id: int, count: int) -> Verdict:
        holding = self._held[request_id]
        after = holding.written + count
        assert after <= self.range_slots, f"{request_id} leaves its range: {after} slots"
        short = max(self._whole_pages(after) - self._pages(request_id), 0)
        if short > self._ranges.free_pages:
            return classify(short * self.page_slots, self.free, self.free, self.usable)
        self._ranges.hold(holding.line, short)
        holding.written = after
        return Verdict(ADMITTED, short * self.page_slots, self.free, self.free)

    def release(self, request_id: int) -> None:
        holding = self._held.pop(request_id)
        self.table.close(request_id)
        self._ranges.close(holding.line, keep=self._keeps)

    def slots(self, request_id: int) -> slice:
        holding = self._held[request_id]
        start = self._ranges.start(holding.line)
        return slice(start, start + holding.written)

    def written(self, request_id: int) -> int:
        return self._held[request_id].written

    def holds(self, request_id: int) -> bool:
        return request_id in self._held

    def held(self, request_id: int) -> int:
        return self._pages(request_id) * self.page_slots

    def frames(self, request_id: int) -> np.ndarray:
        """Physical frames of a request in the order of its tokens, int32 [pages]."""
        line = self._held[request_id].line
        return self._ranges.frames[line, : self._pages(request_id)].copy()

    def note(self, entry: Entry) -> None:
        self._ranges.journal.append(entry)

    def extras(self) -> dict[str, float]:
        """What only this layout counts: pages."""
        return {"mapped_pages": self.mapped_pages, "mapped_unused": self.mapped_unused}

    def take_journal(self) -> Journal:
        journal, self._ranges.journal = self._ranges.journal, []
        return journal

    def columns(self) -> Columns:
        used = np.zeros(self.pages, np.int64)
        owner = np.full(self.pages, HOLE, np.int64)
        for request_id, holding in self._held.items():
            frames = self.frames(request_id)
            owner[frames] = request_id
            inside = holding.written - np.arange(len(frames)) * self.page_slots
            used[frames] = np.clip(inside, 0, self.page_slots)
        start = np.arange(self.pages, dtype=np.int64) * self.page_slots
        size = np.full(self.pages, self.page_slots, np.int64)
        rest = self.capacity - self.usable
        if rest:  # slots behind the last whole frame: no frame covers them
            start, size = np.append(start, self.usable), np.append(size, rest)
            used, owner = np.append(used, 0), np.append(owner, RESERVED)
        return Columns(start, size, used, owner, (owner != HOLE).astype(np.int64))

    def check(self) -> None:
        self._ranges.check()
        lines = [holding.line for holding in self._held.values()]
        assert len(set(lines)) == len(lines), "two requests have the same range"
        assert self._ranges.held.sum() == self._ranges.held[lines].sum(), "a page is held by nobody"
        for request_id, holding in self._held.items():
            assert holding.written <= self.held(request_id), f"{request_id} overflows"
            start = self.table.array[self.table.row(request_id), 0]
            assert start == self._ranges.start(holding.line), f"{request_id} has a wrong address"

    def _whole_pages(self, slots: int) -> int:
        return -(-slots // self.page_slots)

    def _rounded(self, slots: int) -> int:
        return self._whole_pages(slots) * self.page_slots

    def _pages(self, request_id: int) -> int:
        return int(self._ranges.held[self._held[request_id].line])
