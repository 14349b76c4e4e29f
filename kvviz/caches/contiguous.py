"""Contiguous layout: one region a request, asked for at admission.

What is asked for is the reservation's choice. A request that outgrows its region grows into the
hole right behind it, else moves to a hole that holds all of it, else its append is refused. Free
slots that lie in pieces serve nobody who needs one piece: compaction closes the holes, on
refusal, when too much is wasted, or a few slots each step. Every move is a copy on the tensors.
"""

from __future__ import annotations

import numpy as np

from kvviz.allocators.allocator import Allocator, Plan
from kvviz.allocators.compact import bounded_slide, final_places, full_slide
from kvviz.allocators.fits import CHOICES, FitAllocator
from kvviz.allocators.kinds import ALLOCATORS
from kvviz.allocators.reserve import RESERVATIONS
from kvviz.caches.layout import AddressTable, Entry, Journal, classify
from kvviz.caches.region_rows import RegionRows
from kvviz.config import RunConfig
from kvviz.records import (
    ADMITTED,
    CAPACITY,
    FRAGMENTED,
    Columns,
    Freed,
    Move,
    Region,
    Request,
    Verdict,
)


class ContiguousLayout:
    """See `caches.layout.Layout`."""

    grain = 1
    paged = False
    copies_on_write = False
    steadfast = True

    def __init__(self, config: RunConfig) -> None:
        self.capacity = config.memory.slots
        self.table = AddressTable(piece=self.capacity)
        c = config.contiguous
        name = c.fit if c.allocator == "fits" else c.allocator
        self._allocator: Allocator = ALLOCATORS[name](
            self.capacity, coalesce=c.coalesce, order=c.order
        )
        self._rows = RegionRows(len(self.table.array))
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
        if not self._allocator.fits(verdict.need):
            moved = self._carry_out(self._opening(verdict.need) or [])
            verdict = verdict._replace(moved=moved)
        self._hold(request.id, self._reserve(request, tokens))
        return verdict

    def append(self, request_id: int, count: int) -> Verdict:
        rows, line = self._rows, self.table.row(request_id)
        short = count - rows.room_of[line]
        moved = 0
        if short > 0:
            verdict = self._grow(line, short)
            if not verdict.admitted:
                return verdict
            moved = verdict.moved
        rows.write(line, count)
        return Verdict(ADMITTED, count, self.free, self.admissible, moved)

    def append_each(self, lines: np.ndarray) -> bool:
        """One more token for each of these lines of the table, or False and nothing is changed:
        some region is full."""
        return self._rows.write_each(lines)

    def fork(self, parent_id: int, child: Request) -> Verdict:
        """A sample of the same prompt: a region of its own, and a copy of what is written."""
        parent = self.table.row(parent_id)
        written = self._rows.written(parent)
        need = self.need(child, written)
        verdict = self._classify(need)
        if not verdict.admitted:
            return verdict
        line = self._hold(child.id, self._reserve(child, written))
        start_of = self._rows.start_of
        self._rows.write(line, written)
        self._journal.append(Move(start_of[parent], start_of[line], written, child.id))
        return verdict._replace(moved=written)

    def release(self, request_id: int) -> None:
        line = self.table.row(request_id)
        region = self._rows.region(line)
        self._allocator.free(region)
        self._journal.append(Freed(*region))
        self._rows.close(line)
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
            live = self._rows.regions()
            moved = self._carry_out(bounded_slide(live, self._credit, self._written_at()))
            self._credit -= moved
            return moved
        return 0

    def compact(self) -> int:
        """Make the largest hole as large as it can be; returns the slots copied."""
        return self._carry_out(self._allocator.repack())

    def slots(self, request_id: int) -> slice:
        line = self.table.row(request_id)
        start = self._rows.start_of[line]
        return slice(start, start + self._rows.written(line))

    def written(self, request_id: int) -> int:
        return self._rows.written(self.table.row(request_id))

    def holds(self, request_id: int) -> bool:
        return request_id in self.table

    def held(self, request_id: int) -> int:
        return self._rows.size_of[self.table.row(request_id)]

    def sizes_each(self, lines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each of these lines of the table: (slots written, slots held), int64 [n] each."""
        held = self._rows.size[lines]
        return held - self._rows.room[lines], held

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
            found["rounding_loss"] = self._rows.rounded()
        return found

    def columns(self) -> Columns:
        return self._rows.columns(self._allocator.hole_columns())

    def owners(self) -> np.ndarray:
        """Whose the regions are, by address, int64 [requests]."""
        return self._rows.owners()

    def check(self) -> None:
        self._allocator.check()
        rows = self._rows
        assert sorted(rows.regions()) == self._allocator.live(), (
            "the layout and its allocator disagree"
        )
        ids = {rows.id_of[line]: line for line in rows.lines()}
        for request_id, line in ids.items():
            assert rows.written(line) <= rows.size_of[line], f"{request_id} outgrew its region"
            assert self.table.row(request_id) == line, f"{request_id}: two regions"
            start = self.table.array[line, 0]
            assert start == rows.start_of[line], f"{request_id}: address table is stale"

    def _granted(self, size: int) -> int:
        """With the allocator's rounding; a size that no pool of this kind grants stays as it is,
        so that the verdict can name it."""
        if size > self._allocator.largest_possible:
            return size
        return self._allocator.granted(size)

    def _classify(self, need: int) -> Verdict:
        return classify(need, self.free, self.admissible, self._allocator.largest_possible)

    def _hold(self, request_id: int, size: int) -> int:
        """Allocate for this request; its line of the table."""
        region = self._allocator.allocate(size)
        assert region is not None, f"{size} slots were promised, but no region was found"
        line = self.table.open(request_id)
        if line >= len(self._rows.id):
            self._rows.lengthen(len(self.table.array))
        self._rows.open(line, request_id, region, size)
        self.table.put(request_id, 0, region.start)
        return line

    def _grow(self, line: int, short: int) -> Verdict:
        """In place, else into a hole that holds it all, else compaction, else refused."""
        region = self._rows.region(line)
        grown = self._allocator.extend(region, short)
        if grown is not None:
            self._rows.move(line, grown)
            return Verdict(ADMITTED, short, self.free, self.admissible)
        size = self._granted(region.size + short)
        verdict = self._classify(size)
        if verdict.admitted:
            return verdict._replace(moved=self._relocate(line, size))
        if self._settings.compaction == "on_refusal":
            moved = self._grow_by_compaction(line, short, size)
            if moved is not None:
                return Verdict(ADMITTED, short, self.free, self.admissible, moved)
            return verdict._replace(kind=CAPACITY)
        # In place it needs only the extra slots: with that many free this is fragmentation.
        extra = size - region.size
        if extra > self.free:
            return verdict._replace(kind=CAPACITY)
        return verdict._replace(kind=FRAGMENTED, need=extra)

    def _relocate(self, line: int, size: int) -> int:
        target = self._allocator.allocate(size)
        assert target is not None, f"a hole of {size} was promised"
        source, written = self._rows.region(line), self._rows.written(line)
        request_id = self._rows.id_of[line]
        self._allocator.free(source)
        self._journal.append(Move(source.start, target.start, written, request_id))
        self._journal.append(Freed(*source))
        self._rows.move(line, target)
        self.table.put(request_id, 0, target.start)
        return written

    def _grow_by_compaction(self, line: int, short: int, size: int) -> int | None:
        """Slots copied, or None when even that makes no room."""
        if self._allocator.can_slide and self._settings.compact_by == "slide":
            if not self._fits_after_slide(line, short):
                return None
            moved = self._carry_out(full_slide(self._rows.regions()))
            grown = self._allocator.extend(self._rows.region(line), short)
            if grown is None:
                return moved + self._relocate(line, size)
            self._rows.move(line, grown)
            return moved
        plan = self._opening(size)
        if plan is None:
            return None
        return self._carry_out(plan) + self._relocate(line, size)

    def _fits_after_slide(self, line: int, short: int) -> bool:
        """After a slide one hole lies behind the last region: that one grows into it, any other
        must move there whole."""
        rows = self._rows
        if rows.start_of[line] == rows.start.max():
            return short <= self.free
        return self._allocator.hole_for(rows.size_of[line] + short) <= self.free

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
        rows = self._rows
        return {rows.start_of[line]: rows.written(line) for line in rows.lines()}

    def _carry_out(self, plan: Plan) -> int:
        """Do these moves; returns the slots copied (only written slots are copied)."""
        if not plan:
            return 0
        rows = self._rows
        lines = {rows.start_of[line]: line for line in rows.lines()}
        moved = 0
        for region, start in plan:
            line = lines[start] = lines.pop(region.start)
            rows.move(line, Region(start, region.size))
            request_id, written = rows.id_of[line], rows.written(line)
            self._journal_move(request_id, region.start, start, written)
            self.table.put(request_id, 0, start)
            moved += written
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
