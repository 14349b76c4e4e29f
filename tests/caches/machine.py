"""A layout with real tensors, against a record of what was written where.

As in the engine, the operations of a step change the bookkeeping only; then the journal is
carried out and the step's tokens are written. The value of a token is a number for it and all
that stands before it, so a stale slot, a lost move or a slot of another request can't read right
by chance, and a prefix that is shared must.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from kvviz.caches.layout import Journal, Places
from kvviz.caches.layouts import LANES, LAYOUTS
from kvviz.caches.store import POISONED
from kvviz.config import ADMISSIONS, COALESCE, COMPACT_BY, ORDERS, RunConfig
from kvviz.records import (
    HOLE,
    NEVER,
    RESERVED,
    Move,
    Request,
    SwappedIn,
    SwappedOut,
    Verdict,
)
from kvviz.shapes import ModelShape
from tests.caches.references import REFERENCES
from tests.caches.served import Served
from tests.helpers import config, indices
from tests.strategies import MEMORY, Op, requests, sizes

SHAPE = ModelShape(num_hidden_layers=2, num_key_value_heads=2, head_dim=2)
SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    **MEMORY,
    "contiguous.coalesce": st.sampled_from(COALESCE),
    "contiguous.order": st.sampled_from(ORDERS),
    "contiguous.compact_by": st.sampled_from(COMPACT_BY),
    "contiguous.compact_share": st.sampled_from([0.0, 0.2]),
    "contiguous.compact_slots": st.sampled_from([2, 16]),
    "cells.buffers": st.sampled_from([2, 3, 4]),
    "paged.prefix_sharing": st.booleans(),
    "paged.null_block": st.booleans(),
    "paged.admission": st.sampled_from(ADMISSIONS),
    "paged.watermark": st.sampled_from([0.0, 0.0, 0.2]),
    "engine.chunk": st.sampled_from([0, 5]),
    "engine.token_budget": st.sampled_from([8, 256]),
}
TAKEN_LIVE = {path for path, _, meta in RunConfig().walk() if meta["live"]}
LIVE = {path: values for path, values in SETTINGS.items() if path in TAKEN_LIVE}
OPS = {"append": 4, "admit": 6, "return": 3, "each": 4, "release": 1, "preempt": 1, "swap": 2}
SHARED = [(), (), ((0, 8),), ((0, 30),), ((0, 3), (1, 14))]


@st.composite
def steps(draw: st.DrawFn) -> list[Op]:
    """The calls of one step, in order; appends are the most common, as in serving."""
    kinds = st.sampled_from([kind for kind, share in OPS.items() for _ in range(share)])
    ops = st.builds(Op, kinds, st.integers(0, 30), sizes(30))
    return draw(st.lists(ops, min_size=4, max_size=10))


class CacheMachine(RuleBasedStateMachine):
    """`away[r]`: (request, its tokens in host memory, or -1 when they were given up, tokens known,
    step in which it gave way)."""

    def __init__(self, lane: str, pinned: dict[str, Any], shape: ModelShape = SHAPE) -> None:
        super().__init__()
        self.name, self.pinned = LANES[lane].layout, {**LANES[lane].settings, **pinned}
        self.shape = shape
        # [L, K or V, H_kv, d_h]
        self.numbers = torch.arange(shape.slot_elements).view(2, 2, 2, shape.head_dim)
        self.away: dict[int, tuple[Request, int, int, int]] = {}
        self.back: set[int] = set()
        self.appended: list[tuple[int, int, int]] = []
        self.moved = self.named = self.count = 0

    @initialize(changes=st.fixed_dictionaries(SETTINGS), slots=st.sampled_from([64, 75, 96]))
    def start(self, changes: dict[str, Any], slots: int) -> None:
        context = 32 if self.name == "virtual" else 16
        run = config({"memory.slots": slots, "memory.context": context, **changes, **self.pinned})
        # A page of the virtual layout is as large as a block
        self.layout = LAYOUTS[self.name](run, run.virtual.page_bytes // run.paged.block_size)
        self.served = Served(self.layout, run)
        self.reference = REFERENCES[type(self.layout)](self.served)
        self.store = self.reference.store(self.shape)
        self.at_start = (self.layout.free, self.layout.admissible)

    @rule(step=steps(), data=st.data())
    def step(self, step: list[Op], data: st.DataObject) -> None:
        if hasattr(self.layout, "maintain"):
            self.moved += self.layout.maintain()
        for op in step:
            if op.kind == "admit":
                self._arrive(data)
            elif op.kind == "return":
                self._return(op.pick)
            elif op.kind == "each":
                self._append_each(op.pick)
            elif self.served.live:
                request = sorted(self.served.live)[op.pick % len(self.served.live)]
                if op.kind == "append":
                    self._append(request, op.size)
                else:
                    self._leave(request, op.kind)
        self._commit()

    @precondition(lambda self: hasattr(self.layout, "fork") and self.served.live)
    @rule(pick=st.integers(0, 30), grow=st.integers(0, 4))
    def fork(self, pick: int, grow: int) -> None:
        """After the forward that computed the prompt, as the engine does it."""
        live = self.served.live
        written = {r: self.layout.written(r) for r in sorted(live)}
        ready = [r for r, n in written.items() if 0 < n <= live[r].prompt_len and n < live[r].life]
        if not ready:
            return
        parent = ready[pick % len(ready)]
        self.named += 1
        child = replace(live[parent], id=self.named)
        expected = self.reference.fork(parent, child)
        before = self._everything()
        verdict = self.layout.fork(parent, child)
        assert expected in (None, verdict.admitted)
        if not verdict.admitted:
            assert self._everything() == before, "a refused fork changed something"
            return
        count = written[parent]
        assert verdict.cached + verdict.moved == self.layout.written(child.id) == count
        self.moved += verdict.moved
        self._enter(child, count)
        slots = [self.served.addresses(r, count).tolist() for r in (parent, child.id)]
        shares = count - verdict.moved if self.layout.copies_on_write else 0
        assert [a == b for a, b in zip(*slots, strict=True)] == [i < shares for i in range(count)]
        self._append(child.id, grow)
        self._commit()

    @rule(data=st.data())
    def reconfigure(self, data: st.DataObject) -> None:
        changes = data.draw(st.fixed_dictionaries(LIVE))
        self.served.config = self.served.config.replace({**changes, **self.pinned})
        self.layout.reconfigure(self.served.config)

    def _arrive(self, data: st.DataObject) -> None:
        self.named += 1
        context = data.draw(st.sampled_from([8, 20, 30, 30, 110]))
        request = data.draw(requests(self.named, context))
        text = data.draw(st.sampled_from([0, request.id]))
        shared = data.draw(st.sampled_from(SHARED))
        if sum(length for _, length in shared) >= request.prompt_len:
            shared = ()
        request = replace(request, text=text, shared=shared)
        if self._admit(request, request.prompt_len).admitted:
            self._append(request.id, data.draw(st.sampled_from([request.prompt_len, 2, 0])))

    def _admit(self, request: Request, tokens: int) -> Verdict:
        expected = self.reference.admit(request, tokens)
        before = self._everything()
        asked = self.layout.question(request, tokens)
        assert self._everything() == before, "a question changed something"
        verdict = self.layout.admit(request, tokens)
        assert asked == verdict._replace(moved=0, cached=0)
        assert expected in (None, verdict._replace(moved=0))
        assert (verdict.free, verdict.largest) == (before["free"], before["admissible"])
        if verdict.admitted:
            assert verdict.need <= verdict.free and verdict.cached < tokens
            assert (verdict.moved > 0) <= (verdict.need > verdict.largest)
            self.moved += verdict.moved
            self._enter(request, verdict.cached)
        else:
            assert self._everything() == before, "a refused request changed something"
            assert (verdict.kind == NEVER) == (verdict.need > self.reference.longest)
        return verdict

    def _enter(self, request: Request, done: int) -> None:
        self.served.live[request.id] = request
        self.served.done[request.id] = done

    def _append(self, request: int, size: int) -> Verdict | None:
        written = self._told(request)
        count = min(size, self.served.live[request].life - written)
        if count <= 0:
            return None
        expected = self.reference.append(request, count)
        before = self._everything()
        verdict = self.layout.append(request, count)
        if expected is not None:
            assert (verdict.kind, verdict.need) == expected[:2]
            assert expected.moved in (None, verdict.moved)
        if verdict.admitted:
            assert self._told(request) == written + count <= self.layout.held(request)
            self.moved += verdict.moved
            self.appended.append((request, written, written + count))
        else:
            assert self._everything() == before, "a refused append changed something"
        return verdict

    def _told(self, request: int) -> int:
        """Tokens appended so far; some layouts only claim slots for them until all are known."""
        claims = isinstance(self.layout, Places)
        return self.layout.held(request) if claims else self.layout.written(request)

    def _append_each(self, pick: int) -> None:
        """One more token for most of the live requests: in one call, or one by one."""
        live = self.served.live
        grow = [r for r in live if r != pick and self._told(r) < live[r].life]
        if grow and hasattr(self.layout, "append_each") and self._append_at_once(grow):
            return
        for request in grow:
            self._append(request, 1)

    def _append_at_once(self, grow: list[int]) -> bool:
        expected = self.reference.append_each(grow)
        before = self._everything()
        written = {r: self._told(r) for r in grow}
        rows = [self.layout.table.row(r) for r in grow]
        done = self.layout.append_each(np.array(rows, np.int64))
        assert expected in (None, done)
        if done:
            self.appended += [(r, written[r], written[r] + 1) for r in grow]
        else:
            assert self._everything() == before, "a refused append_each changed something"
        return done

    def _leave(self, request_id: int, kind: str) -> None:
        """Finished, or given way: then it may come back in a later step."""
        if request_id in self.back:  # nobody gives way in the step in which it is admitted
            return
        request, done = self.served.live[request_id], self.served.done[request_id]
        if kind == "swap" and not getattr(self.layout, "swaps", True):
            kind = "preempt"
        if kind != "release" and 0 < done < request.life:
            if kind == "swap":
                self.layout.note(SwappedOut(request_id, first(self.layout, request_id, done)))
            self.away[request_id] = (request, done if kind == "swap" else -1, done + 1, self.count)
        self.layout.release(request_id)
        del self.served.live[request_id], self.served.done[request_id]
        assert not self.layout.holds(request_id)

    def _return(self, pick: int) -> None:
        """Back from host memory, or computed anew, with what memory still has of it."""
        ready = [r for r in sorted(self.away) if self.away[r][3] < self.count]
        if not ready:
            return
        request, swapped, tokens, _ = self.away[ready[pick % len(ready)]]
        verdict = self._admit(request, tokens)
        if not verdict.admitted:
            return
        there = max(verdict.cached, swapped)
        engine = self.served.config.engine
        count = min(tokens - there, engine.chunk or engine.token_budget)
        more = self._append(request.id, there - verdict.cached + count)
        if more is None or not more.admitted:
            assert swapped >= 0, f"admitted, but the first chunk has no room: {more}"
            self.layout.release(request.id)
            del self.served.live[request.id], self.served.done[request.id]
            return
        if swapped >= 0:
            self.layout.note(SwappedIn(request.id, min(verdict.cached, swapped), swapped))
        self.served.done[request.id] = there
        self.back.add(request.id)
        del self.away[request.id]

    def _commit(self) -> None:
        """Carry out the journal, then write the step's tokens where they belong by now."""
        self._place()
        self._carry_out(self.layout.take_journal())
        live = self.served.live
        for request in live:
            self._write(request, self.served.done[request], self.layout.written(request))
            self.served.done[request] = self.layout.written(request)
        self.reference.written([a for a in self.appended if a[0] in live])
        self.appended = []
        self.back.clear()
        self.count += 1

    def _place(self) -> None:
        if isinstance(self.layout, Places):
            parts = self.layout.place()
            claims = [a for a in self.appended if a[0] in self.served.live]
            slots = [indices(self.layout, r)[first:last] for r, first, last in claims]
            self.reference.placed(np.concatenate([*slots, np.zeros(0, np.int64)]), parts)

    def _carry_out(self, journal: Journal) -> None:
        assert sum(entry.size for entry in journal if isinstance(entry, Move)) == self.moved
        self.moved = 0
        self.store.apply(journal)
        for entry in journal:
            if isinstance(entry, SwappedIn):
                slots = indices(self.layout, entry.request)
                self.store.swap_in(entry, slots[entry.start : entry.stop])

    def _write(self, request: int, start: int, stop: int) -> None:
        if start == stop:
            return
        slots = self.served.addresses(request, stop)[start:]
        values = self._values(self.served.serials(request, stop)[start:])
        for layer in range(2):
            self.store.write(
                layer, torch.from_numpy(slots), values[:, layer, 0], values[:, layer, 1]
            )
        self.store.tag(slots, np.full(stop - start, request), np.arange(start, stop))

    def _cached(self) -> np.ndarray:
        """Free slots that must keep what was written."""
        cached = getattr(self.layout, "cached_slots", lambda: np.zeros(0, np.int64))
        return np.asarray(cached(), np.int64)

    def _everything(self) -> dict[str, Any]:
        """All that a question or a refusal must leave as it was."""
        layout, columns = self.layout, self.layout.columns()
        return {
            "free": layout.free,
            "admissible": layout.admissible,
            "columns": [None if c is None else c.tolist() for c in vars(columns).values()],
            "slots": {r: indices(layout, r).tolist() for r in self.served.live},
            "held": {r: (layout.held(r), layout.written(r)) for r in self.served.live},
            "cached": self._cached().tolist(),
        }

    @invariant()
    def bookkeeping_is_sound(self) -> None:
        layout, live = self.layout, self.served.live
        layout.check()
        columns, owners, refs = layout.columns(), self.served.owners(), self.served.refs()
        assert columns.start.tolist() == [0, *np.cumsum(columns.size)[:-1].tolist()]
        assert len(owners) == layout.capacity
        assert layout.free == (owners == HOLE).sum()
        assert ((refs == 0) == (owners == HOLE)).all()
        assert not columns.used[columns.owner < 0].any()
        apart = int((refs[owners >= 0] - 1).sum())
        held = sum(layout.held(r) for r in live)
        assert held - apart + layout.free + (owners == RESERVED).sum() == layout.capacity
        assert self.reference.largest() in (None, layout.admissible)
        assert layout.fits(layout.admissible) and not layout.fits(layout.admissible + 1)
        if not layout.copies_on_write:
            assert int(refs.max(initial=0)) <= 1

    @invariant()
    def regions_overlap_only_where_shared(self) -> None:
        """And the columns name the oldest holder of each slot."""
        owners, refs, cached = self.served.owners(), self.served.refs(), self._cached()
        holders = np.zeros(self.layout.capacity, np.int64)
        oldest = np.full(self.layout.capacity, HOLE, np.int64)
        for request in reversed(self.served.live):
            slots = self.reference.physical(request)
            assert len(set(slots.tolist())) == len(slots) == self.layout.written(request)
            holders[slots] += 1
            oldest[slots] = request
        assert (holders <= refs).all()
        assert (oldest[holders > 0] == owners[holders > 0]).all()
        used = self.layout.columns().used
        assert used.sum() == (holders > 0).sum()
        assert (owners[cached] == HOLE).all()

    @invariant()
    def tensors_hold_what_was_written(self) -> None:
        self._carry_out(self.layout.take_journal())
        found = self.store.written_map()
        expected = np.full(self.store.slots, POISONED, np.int64)
        for request in self.served.live:
            count = self.layout.written(request)
            slots = self.served.addresses(request, count)
            assert slots.tolist() == indices(self.layout, request).tolist()
            self._read(slots, self.served.serials(request, count))
            assert (found[slots] & 0xFFFFFFFF).tolist() == list(range(count))
            if not self.layout.copies_on_write:
                assert (found[slots] >> 32 == request).all()
            expected[slots] = found[slots]
        cached = self._cached()
        assert (found[cached] != POISONED).all()
        expected[cached] = found[cached]
        assert found.tolist() == expected.tolist()
        self._cached_prefixes_are_whole(cached)
        self.reference.check(self.store)

    def _cached_prefixes_are_whole(self, cached: np.ndarray) -> None:
        """Each cached block still holds tokens that follow each other."""
        grain = self.layout.grain
        for block in cached.reshape(-1, grain):
            serial = int(self.store.view[0, 0, block[-1], 0, 0]) // self.numbers.numel()
            serials = [serial]
            while len(serials) < grain:
                serials.append(self.served.texts.before[serials[-1]])
            self._read(block, serials[::-1])

    def _read(self, slots: np.ndarray, serials: list[int]) -> None:
        want = self._values(serials)
        for layer in range(2):
            k, v = self.store.read(layer, torch.from_numpy(slots))
            assert torch.equal(k, want[:, layer, 0]) and torch.equal(v, want[:, layer, 1])

    def _values(self, serials: list[int]) -> torch.Tensor:
        """[tokens, L, K or V, H_kv, d_h], all different."""
        each = torch.tensor(serials)[:, None, None, None, None]
        return (each * self.numbers.numel() + self.numbers).float()

    def teardown(self) -> None:
        """When all have left, everything is free again; what is cached counts as free."""
        if not hasattr(self, "layout"):
            return
        for request in list(self.served.live):
            self._leave(request, "release")
        self._carry_out(self.layout.take_journal())
        self.layout.check()
        assert (self.layout.free, self.layout.admissible) == self.at_start
        empty = np.flatnonzero(self.store.written_map() == POISONED)
        assert len(empty) + len(self._cached()) == self.store.slots
        self.store.close()


def first(layout: Any, request_id: int, count: int) -> slice | np.ndarray:
    """The slots of the first tokens, in the layout's own form."""
    slots = layout.slots(request_id)
    return slice(slots.start, slots.start + count) if isinstance(slots, slice) else slots[:count]
