"""Contiguous layout: one region a request.

    |written|reserved|...hole...|written|hole|written|reserved|

A request is admitted when one hole holds its whole reservation. When it outgrows its region
(reservation `exact`) it grows in place, else it moves to a hole that is large enough, else the
append is refused. Compaction `on_refusal` slides all live regions to the low end when free
slots would do but no hole does; every slide is a list of Moves in the journal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz.allocators.compact import full_slide
from kvviz.allocators.fits import CHOICES, FitAllocator
from kvviz.allocators.reserve import RESERVATIONS
from kvviz.caches.layout import AddressTable, Entry, Journal, classify
from kvviz.config import RunConfig
from kvviz.records import (
    ADMITTED,
    CAPACITY,
    FRAGMENTED,
    HOLE,
    Columns,
    Freed,
    Move,
    Region,
    Request,
    Verdict,
)


@dataclass(slots=True)
class _Holding:
    region: Region
    written: int


class ContiguousLayout:
    """See `caches.layout.Layout`."""

    grain = 1
    paged = False
    copies_on_write = False

    def __init__(self, config: RunConfig) -> None:
        self.capacity = config.memory.slots
        self.table = AddressTable(piece=self.capacity)
        self._allocator = FitAllocator(self.capacity, config.contiguous.fit)
        self._held: dict[int, _Holding] = {}
        self._journal: Journal = []
        self.reconfigure(config)

    def reconfigure(self, config: RunConfig) -> None:
        self._reserve = RESERVATIONS[config.contiguous.reservation]
        self._compact_on_refusal = config.contiguous.compaction == "on_refusal"
        self._allocator.choice = CHOICES[config.contiguous.fit]

    @property
    def free(self) -> int:
        return self._allocator.free_slots

    @property
    def admissible(self) -> int:
        return self._allocator.largest

    def fits(self, count: int) -> bool:
        return count <= self._allocator.largest

    def need(self, request: Request, tokens: int) -> int:
        return self._reserve(request, tokens)

    def question(self, request: Request, tokens: int) -> Verdict:
        need = self.need(request, tokens)
        # `exact` asks for little at first, but the request's whole life must fit in the pool.
        if request.life > self.capacity:
            need = max(need, request.life)
        verdict = classify(need, self.free, self.admissible, self.capacity)
        if verdict.kind == FRAGMENTED and self._compact_on_refusal:
            return verdict._replace(kind=ADMITTED)
        return verdict

    def admit(self, request: Request, tokens: int) -> Verdict:
        verdict = self.question(request, tokens)
        if not verdict.admitted:
            return verdict
        moved = self._slide() if verdict.need > verdict.largest else 0
        region = self._allocator.allocate(verdict.need)
        assert region is not None, f"{verdict} but no region was found"
        self._held[request.id] = _Holding(region, 0)
        self.table.open(request.id)
        self.table.put(request.id, 0, region.start)
        return verdict._replace(moved=moved)

    def append(self, request_id: int, count: int) -> Verdict:
        holding = self._held[request_id]
        short = holding.written + count - holding.region.size
        moved = 0
        if short > 0:
            verdict = self._grow(request_id, holding, short)
            if not verdict.admitted:
                return verdict
            moved = verdict.moved
        holding.written += count
        return Verdict(ADMITTED, count, self.free, self.admissible, moved)

    def release(self, request_id: int) -> None:
        holding = self._held.pop(request_id)
        self._allocator.free(holding.region)
        self._journal.append(Freed(*holding.region))
        self.table.close(request_id)

    def compact(self) -> int:
        """Slide all live regions to the low end now; returns the slots copied."""
        return self._slide()

    def slots(self, request_id: int) -> slice:
        holding = self._held[request_id]
        return slice(holding.region.start, holding.region.start + holding.written)

    def written(self, request_id: int) -> int:
        return self._held[request_id].written

    def holds(self, request_id: int) -> bool:
        return request_id in self._held

    def held(self, request_id: int) -> int:
        return self._held[request_id].region.size

    def note(self, entry: Entry) -> None:
        self._journal.append(entry)

    def take_journal(self) -> Journal:
        journal, self._journal = self._journal, []
        return journal

    def columns(self) -> Columns:
        rows = [
            (h.region.start, h.region.size, h.written, owner, 1) for owner, h in self._held.items()
        ]
        rows += [(start, size, 0, HOLE, 0) for start, size in self._allocator.holes()]
        rows.sort()
        table = np.array(rows, np.int64).reshape(-1, 5)
        return Columns(*(np.ascontiguousarray(column) for column in table.T))

    def check(self) -> None:
        self._allocator.check()
        live = sorted(h.region for h in self._held.values())
        assert live == self._allocator.live(), "the layout and its allocator disagree"
        for request_id, holding in self._held.items():
            assert holding.written <= holding.region.size, f"{request_id} outgrew its region"
            start = self.table.array[self.table.row(request_id), 0]
            assert start == holding.region.start, f"{request_id}: address table is stale"

    def _grow(self, request_id: int, holding: _Holding, short: int) -> Verdict:
        """In place, else into a hole that holds it all, else compaction, else refused."""
        grown = self._allocator.extend(holding.region, short)
        if grown is not None:
            holding.region = grown
            return Verdict(ADMITTED, short, self.free, self.admissible)
        size = holding.region.size + short
        verdict = classify(size, self.free, self.admissible, self.capacity)
        if verdict.admitted:
            return verdict._replace(moved=self._relocate(request_id, holding, size))
        if self._compact_on_refusal and self._fits_after_slide(holding, short):
            return self._grow_by_sliding(request_id, holding, short)
        if self._compact_on_refusal or short > self.free:
            return verdict._replace(kind=CAPACITY)
        # In place it needs only the extra slots: with that many free this is fragmentation.
        return verdict._replace(kind=FRAGMENTED, need=short)

    def _relocate(self, request_id: int, holding: _Holding, size: int) -> int:
        target = self._allocator.allocate(size)
        assert target is not None, f"a hole of {size} was promised"
        source = holding.region
        self._allocator.free(source)
        self._journal.append(Move(source.start, target.start, holding.written, request_id))
        self._journal.append(Freed(*source))
        holding.region = target
        self.table.put(request_id, 0, target.start)
        return holding.written

    def _fits_after_slide(self, holding: _Holding, short: int) -> bool:
        """After a slide one hole lies behind the last region: that one grows into it, any other
        must move there whole."""
        last = max(h.region.start for h in self._held.values())
        needs = short if holding.region.start == last else holding.region.size + short
        return needs <= self.free

    def _grow_by_sliding(self, request_id: int, holding: _Holding, short: int) -> Verdict:
        moved = self._slide()
        grown = self._allocator.extend(holding.region, short)
        if grown is None:
            moved += self._relocate(request_id, holding, holding.region.size + short)
        else:
            holding.region = grown
        return Verdict(ADMITTED, short, self.free, self.admissible, moved)

    def _slide(self) -> int:
        """Close all holes; returns the slots copied (only written slots are copied)."""
        owner = {h.region.start: (i, h) for i, h in self._held.items()}
        moved = 0
        targets: dict[int, int] = {}
        for region, start in full_slide(h.region for h in self._held.values()):
            request_id, holding = owner[region.start]
            targets[region.start] = start
            holding.region = Region(start, region.size)
            if holding.written:
                self._journal.append(Move(region.start, start, holding.written, request_id))
            self.table.put(request_id, 0, start)
            moved += holding.written
        self._allocator.relocate(targets)
        self._journal += self._unwritten()
        return moved

    def _unwritten(self) -> list[Freed]:
        """Everything between the written runs: after a slide it holds what slid away."""
        freed = []
        at = 0
        for region, written in sorted((h.region, h.written) for h in self._held.values()):
            if region.start > at:
                freed.append(Freed(at, region.start - at))
            at = region.start + written
        if at < self.capacity:
            freed.append(Freed(at, self.capacity - at))
        return freed
