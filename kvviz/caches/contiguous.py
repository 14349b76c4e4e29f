"""Contiguous layout: one region a request, asked for at admission.

What is asked for is the reservation's choice. A request that outgrows its region grows into the
hole right behind it, else moves to a hole that holds all of it, else its append is refused. Free
slots that lie in pieces serve nobody who needs one piece: compaction closes the holes, on
refusal, when too much is wasted, or a few slots each step. Every move is a copy on the tensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np

from kvviz.allocators.allocator import Allocator, Plan
from kvviz.allocators.compact import bounded_slide, final_places, full_slide
from kvviz.allocators.fits import CHOICES, FitAllocator
from kvviz.allocators.kinds import ALLOCATORS
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
    asked: int


class ContiguousLayout:
    """See `caches.layout.Layout`."""

    grain = 1
    paged = False
    copies_on_write = False

    def __init__(self, config: RunConfig) -> None:
        self.capacity = config.memory.slots
        self.table = AddressTable(piece=self.capacity)
        c = config.contiguous
        name = c.fit if c.allocator == "fits" else c.allocator
        self._allocator: Allocator = ALLOCATORS[name](
            self.capacity, coalesce=c.coalesce, order=c.order
        )
        self._held: dict[int, _Holding] = {}
        self._lines: dict[int, _Holding] = {}  # the same by line of the table
        self._journal: Journal = []
        self._credit = 0
        self.reconfigure(config)

    def reconfigure(self, config: RunConfig) -> None:
        c = config.contiguous
        self._settings = c
        self._reserve = RESERVATIONS[c.reservation]
        self._allocator.reconfigure(coalesce=c.coalesce, order=c.order)
        if isinstance(self._allocator, FitAllocator):
            self._allocator.choice = CHOICES[c.fit]

    @property
    def free(self) -> int:
        return self._allocator.free_slots

    @property
    def admissible(self) -> int:
        return self._allocator.largest

    def fits(self, count: int) -> bool:
        return self._allocator.fits(count)

    def need(self, request: Request, tokens: int) -> int:
        """Slots that the request takes, the allocator's rounding included."""
        return self._granted(self._reserve(request, tokens))

    def question(self, request: Request, tokens: int) -> Verdict:
        need = self.need(request, tokens)
        # `exact` asks for little at first, but the request's whole life must fit in the pool.
        if request.life > self._allocator.largest_possible:
            need = max(need, self._granted(request.life))
        verdict = self._classify(need)
        if verdict.kind == FRAGMENTED and self._opening(need) is not None:
            return verdict._replace(kind=ADMITTED)
        return verdict

    def admit(self, request: Request, tokens: int) -> Verdict:
        verdict = self.question(request, tokens)
        if not verdict.admitted:
            return verdict
        moved = 0
        if not self._allocator.fits(verdict.need):
            moved = self._carry_out(self._opening(verdict.need) or [])
        self._hold(request.id, self._reserve(request, tokens))
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
        holding.asked = max(holding.asked, holding.written)
        return Verdict(ADMITTED, count, self.free, self.admissible, moved)

    def append_each(self, lines: np.ndarray) -> bool:
        """One more token for each of these lines of the table, or False and nothing is changed:
        some region is full."""
        holdings = [self._lines[line] for line in lines.tolist()]
        for holding in holdings:
            if holding.written >= holding.region.size:
                return False
        for holding in holdings:
            written = holding.written = holding.written + 1
            if holding.asked < written:
                holding.asked = written
        return True

    def fork(self, parent_id: int, child: Request) -> Verdict:
        """A sample of the same prompt: a region of its own, and a copy of what is written."""
        parent = self._held[parent_id]
        need = self.need(child, parent.written)
        verdict = self._classify(need)
        if not verdict.admitted:
            return verdict
        holding = self._hold(child.id, self._reserve(child, parent.written))
        holding.written = parent.written
        self._journal.append(
            Move(parent.region.start, holding.region.start, parent.written, child.id)
        )
        return verdict._replace(moved=parent.written)

    def release(self, request_id: int) -> None:
        holding = self._held.pop(request_id)
        self._allocator.free(holding.region)
        self._journal.append(Freed(*holding.region))
        del self._lines[self.table.row(request_id)]
        self.table.close(request_id)

    def maintain(self) -> int:
        """Once a step: compaction that waits for no refusal. Returns the slots copied."""
        c = self._settings
        if c.compaction == "threshold":
            wasted = self.free - self.admissible
            return self.compact() if wasted > c.compact_share * self.capacity else 0
        if c.compaction == "steady" and self._allocator.can_slide:
            # What a step does not spend is saved, or a large region would never move
            self._credit = min(self._credit + c.compact_slots, self.capacity)
            live = (h.region for h in self._held.values())
            moved = self._carry_out(bounded_slide(live, self._credit, self._written_at()))
            self._credit -= moved
            return moved
        return 0

    def compact(self) -> int:
        """Make the largest hole as large as it can be; returns the slots copied."""
        return self._carry_out(self._allocator.repack())

    def slots(self, request_id: int) -> slice:
        holding = self._held[request_id]
        return slice(holding.region.start, holding.region.start + holding.written)

    def written(self, request_id: int) -> int:
        return self._held[request_id].written

    def holds(self, request_id: int) -> bool:
        return request_id in self._held

    def held(self, request_id: int) -> int:
        return self._held[request_id].region.size

    def held_each(self, request_ids: list[int]) -> np.ndarray:
        """Slots held by each of these requests, int64 [n]."""
        held = self._held
        return np.array([held[request_id].region.size for request_id in request_ids], np.int64)

    def note(self, entry: Entry) -> None:
        self._journal.append(entry)

    def take_journal(self) -> Journal:
        journal, self._journal = self._journal, []
        return journal

    def extras(self) -> dict[str, float]:
        """What only this layout counts, in slots where it is a size."""
        found: dict[str, float] = {
            "allocations": self._allocator.allocations,
            "allocations_with_remainder": self._allocator.remainders,
        }
        if self._settings.allocator == "buddy":
            found["rounding_loss"] = sum(h.region.size - h.asked for h in self._held.values())
        return found

    def columns(self) -> Columns:
        holdings, holes = self._held.values(), self._allocator.holes()
        places = _pairs(h.region for h in holdings), _pairs(holes)
        start, size = np.concatenate(places).T
        used, owner, refs = np.zeros_like(start), np.full_like(start, HOLE), np.zeros_like(start)
        live = len(holdings)
        used[:live] = [h.written for h in holdings]
        owner[:live] = list(self._held)
        refs[:live] = 1
        order = start.argsort(kind="stable")
        return Columns(*(column[order] for column in (start, size, used, owner, refs)))

    def owners(self) -> np.ndarray:
        """Whose the regions are, by address, int64 [requests]."""
        starts = sorted((h.region.start, request_id) for request_id, h in self._held.items())
        return np.array([request_id for _, request_id in starts], np.int64)

    def check(self) -> None:
        self._allocator.check()
        live = sorted(h.region for h in self._held.values())
        assert live == self._allocator.live(), "the layout and its allocator disagree"
        for request_id, holding in self._held.items():
            assert holding.written <= holding.region.size, f"{request_id} outgrew its region"
            start = self.table.array[self.table.row(request_id), 0]
            assert start == holding.region.start, f"{request_id}: address table is stale"
            assert self._lines[self.table.row(request_id)] is holding, f"{request_id}: two holdings"

    def _granted(self, size: int) -> int:
        """With the allocator's rounding; a size that no pool of this kind grants stays as it is,
        so that the verdict can name it."""
        if size > self._allocator.largest_possible:
            return size
        return self._allocator.granted(size)

    def _classify(self, need: int) -> Verdict:
        return classify(need, self.free, self.admissible, self._allocator.largest_possible)

    def _hold(self, request_id: int, size: int) -> _Holding:
        region = self._allocator.allocate(size)
        assert region is not None, f"{size} slots were promised, but no region was found"
        holding = self._held[request_id] = _Holding(region, 0, size)
        self.table.open(request_id)
        self.table.put(request_id, 0, region.start)
        self._lines[self.table.row(request_id)] = holding
        return holding

    def _grow(self, request_id: int, holding: _Holding, short: int) -> Verdict:
        """In place, else into a hole that holds it all, else compaction, else refused."""
        grown = self._allocator.extend(holding.region, short)
        if grown is not None:
            holding.region = grown
            return Verdict(ADMITTED, short, self.free, self.admissible)
        size = self._granted(holding.region.size + short)
        verdict = self._classify(size)
        if verdict.admitted:
            return verdict._replace(moved=self._relocate(request_id, holding, size))
        if self._settings.compaction == "on_refusal":
            moved = self._grow_by_compaction(request_id, holding, short, size)
            if moved is not None:
                return Verdict(ADMITTED, short, self.free, self.admissible, moved)
            return verdict._replace(kind=CAPACITY)
        # In place it needs only the extra slots: with that many free this is fragmentation.
        extra = size - holding.region.size
        if extra > self.free:
            return verdict._replace(kind=CAPACITY)
        return verdict._replace(kind=FRAGMENTED, need=extra)

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

    def _grow_by_compaction(
        self, request_id: int, holding: _Holding, short: int, size: int
    ) -> int | None:
        """Slots copied, or None when even that makes no room."""
        if self._allocator.can_slide and self._settings.compact_by == "slide":
            if not self._fits_after_slide(holding, short):
                return None
            moved = self._carry_out(full_slide(h.region for h in self._held.values()))
            grown = self._allocator.extend(holding.region, short)
            if grown is None:
                return moved + self._relocate(request_id, holding, size)
            holding.region = grown
            return moved
        plan = self._opening(size)
        if plan is None:
            return None
        return self._carry_out(plan) + self._relocate(request_id, holding, size)

    def _fits_after_slide(self, holding: _Holding, short: int) -> bool:
        """After a slide one hole lies behind the last region: that one grows into it, any other
        must move there whole."""
        last = max(h.region.start for h in self._held.values())
        if holding.region.start == last:
            return short <= self.free
        return self._allocator.hole_for(holding.region.size + short) <= self.free

    def _opening(self, need: int) -> Plan | None:
        """Moves after which a request of `need` is granted; None when compaction on refusal is
        off, or can't do that."""
        if self._settings.compaction != "on_refusal":
            return None
        if self._allocator.can_slide and self._settings.compact_by == "slide":
            enough = self._allocator.hole_for(need) <= self.free
            return self._allocator.repack() if enough else None
        return self._allocator.opening(need, self._written_at())

    def _written_at(self) -> dict[int, int]:
        """{start of a region: slots that a move copies}"""
        return {h.region.start: h.written for h in self._held.values()}

    def _carry_out(self, plan: Plan) -> int:
        """Do these moves; returns the slots copied (only written slots are copied)."""
        owner = {h.region.start: (i, h) for i, h in self._held.items()}
        moved = 0
        for region, start in plan:
            request_id, holding = owner.pop(region.start)
            owner[start] = request_id, holding
            holding.region = Region(start, region.size)
            self._journal_move(request_id, region.start, start, holding.written)
            self.table.put(request_id, 0, start)
            moved += holding.written
        if plan:
            self._allocator.relocate(final_places(plan))
        return moved

    def _journal_move(self, request_id: int, source: int, target: int, size: int) -> None:
        """Copy, and free what the copy did not cover: the two places may overlap."""
        if not size:
            return
        self._journal.append(Move(source, target, size, request_id))
        if target < source:
            first, last = max(source, target + size), source + size
        else:
            first, last = source, min(source + size, target)
        if first < last:
            self._journal.append(Freed(first, last - first))


def _pairs(regions: Iterable[Region]) -> np.ndarray:
    """(start, size) of each, int64 [n, 2]."""
    return np.fromiter(chain.from_iterable(regions), np.int64).reshape(-1, 2)
