"""Every layout with real tensors, against a dict of request -> values written.

Each operation of a step changes the bookkeeping only; then the journal is carried out and the
step's values are written, as the engine does it. Every value ever written is unique, so a stale
slot, a lost move or a slot of another request can't read right by chance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from kvviz.allocators.reserve import RESERVATIONS
from kvviz.caches.budget import PoolBudget
from kvviz.caches.layout import Journal, Places
from kvviz.caches.layouts import LAYOUTS
from kvviz.caches.reserved import OS_PAGE
from kvviz.caches.store import POISONED
from kvviz.caches.virtual_store import store_for
from kvviz.config import COMPACTIONS
from kvviz.records import (
    ADMITTED,
    CAPACITY,
    FRAGMENTED,
    HOLE,
    NEVER,
    Move,
    Request,
    Verdict,
)
from kvviz.shapes import ModelShape
from tests.helpers import config, indices, runs
from tests.strategies import LIVE_MEMORY, MEMORY, Op, operations, requests

SHAPE = ModelShape(num_hidden_layers=2, num_key_value_heads=2, head_dim=2)
# A slot of one page of the system, where those have 4 KiB
WIDE = ModelShape(num_hidden_layers=2, num_key_value_heads=2, head_dim=128)


def verdict_kind(need: int, free: int, largest: int, capacity: int) -> str:
    """Lack of memory first, then lack of a hole."""
    for limit, kind in ((capacity, NEVER), (free, CAPACITY), (largest, FRAGMENTED)):
        if need > limit:
            return kind
    return ADMITTED


class CacheMachine(RuleBasedStateMachine):
    """`values[r][i]` is the serial number of the value written as token i of request r."""

    def __init__(self, name: str, pinned: dict[str, Any], shape: ModelShape) -> None:
        super().__init__()
        self.name, self.pinned, self.shape = name, pinned, shape
        # [L, K or V, H_kv, d_h]
        self.numbers = torch.arange(shape.slot_elements).view(2, 2, 2, shape.head_dim)
        self.requests: dict[int, Request] = {}
        self.values: dict[int, list[int]] = {}
        self.journal: Journal = []
        self.pending: list[tuple[int, int]] = []
        self.named = self.serial = 0

    @initialize(changes=st.fixed_dictionaries(MEMORY), slots=st.sampled_from([64, 75, 96]))
    def start(self, changes: dict[str, Any], slots: int) -> None:
        context = 32 if self.name == "virtual" else 16
        self.config = config(
            {"memory.slots": slots, "memory.context": context, **changes, **self.pinned}
        )
        # So that a page of the virtual layout is a block
        slot_bytes = self.config.virtual.page_bytes // self.config.paged.block_size
        self.layout = LAYOUTS[self.name](self.config, slot_bytes)
        self.store = store_for(
            self.layout, self.shape, torch.device("cpu"), budget=PoolBudget(1 << 24), poison=True
        )
        self.split = self.name == "cells" and self.config.cells.mode == "split"
        self.unified = self.name == "cells" and not self.split
        self.block = self.config.paged.block_size if self.name == "paged" else 1
        if self.split:
            self.block = slots // self.config.cells.buffers
        self.usable = slots // self.block * self.block
        self.longest = (
            min(self.usable, self._rounded(32)) if self.name == "virtual" else self.usable
        )

    @rule(step=operations(30), data=st.data())
    def step(self, step: list[Op], data: st.DataObject) -> None:
        for op in step:
            if op.kind == "admit":
                self._admit(data)
            elif op.kind == "reconfigure":
                self._reconfigure(data.draw(st.fixed_dictionaries(LIVE_MEMORY)))
            elif self.requests:
                request = sorted(self.requests)[op.pick % len(self.requests)]
                if op.kind == "append":
                    self._append(self.requests[request], op.size)
                else:
                    self._release(request)
        self._commit()

    def _reconfigure(self, changes: dict[str, Any]) -> None:
        self.config = self.config.replace({**changes, **self.pinned})
        self.layout.reconfigure(self.config)
        self._collect()

    def _admit(self, data: st.DataObject) -> None:
        self.named += 1
        request = data.draw(requests(self.named, data.draw(st.sampled_from([8, 20, 30, 30, 110]))))
        known = data.draw(st.sampled_from([0, 0, 0, request.output_len // 2, 1 << 20]))
        tokens = min(request.prompt_len + known, request.life)
        before = self._everything()
        asked = self.layout.question(request, tokens)
        assert self._everything() == before, "a question changed something"
        verdict = self.layout.admit(request, tokens)
        moved = self._collect()
        assert verdict == asked._replace(moved=moved)
        assert asked == self._expected_answer(request, tokens, before)
        if not verdict.admitted:
            assert self._everything() == before, "a refused request changed something"
            return
        self.requests[request.id] = request
        self.values[request.id] = []
        assert self.layout.held(request.id) == (0 if self.unified else asked.need)
        assert (moved > 0) <= (asked.need > asked.largest)

    def _expected_answer(self, request: Request, tokens: int, before: dict[str, Any]) -> Verdict:
        free, largest = before["free"], before["admissible"]
        if self.split:
            need = max(self.block, request.life)
            return Verdict(verdict_kind(need, free, largest, self.block), need, free, largest)
        if self.name != "contiguous":
            need, life = self._rounded(tokens), self._rounded(request.life)
        else:
            reserve = RESERVATIONS[self.config.contiguous.reservation]
            need, life = reserve(request, tokens), request.life
        if life > self.longest:
            need = max(need, life)
        kind = verdict_kind(need, free, free if self.unified else largest, self.usable)
        free, largest = before["free"], before["admissible"]
        kind = verdict_kind(need, free, largest, self.longest)
        if kind == FRAGMENTED and self.config.contiguous.compaction == "on_refusal":
            kind = ADMITTED
        return Verdict(kind, need, free, largest)

    def _append(self, request: Request, size: int) -> None:
        count = min(size, request.life - len(self.values[request.id]))
        if count <= 0:
            return
        before = self._everything()
        expected = self._expected_append(request.id, count, before)
        verdict = self.layout.append(request.id, count)
        moved = self._collect()
        assert (verdict.kind, verdict.need, verdict.moved) == (*expected, moved)
        assert (verdict.free, verdict.largest) == (self.layout.free, self.layout.admissible)
        if verdict.admitted:
            self.pending.append((request.id, count))
            self.values[request.id] += range(self.serial, self.serial + count)
            self.serial += count
        else:
            assert self._everything() == before, "a refused append changed something"

    def _expected_append(self, request: int, count: int, before: dict[str, Any]) -> tuple[str, int]:
        """(kind, need) of the verdict."""
        free, held = before["free"], self.layout.held(request)
        if self.name == "cells":
            kind = ADMITTED if self.split else verdict_kind(count, free, free, self.usable)
            return kind, count
        short = self.layout.written(request) + count - held
        if self.name != "contiguous":
            need = max(self._rounded(short), 0)
            return verdict_kind(need, free, free, self.usable), need
        if short <= 0 or self._room_behind(request) >= short:
            return ADMITTED, count
        size = held + short
        slides = self.config.contiguous.compaction == "on_refusal"
        last = indices_end(before["owner"], request) == self._last_owned(before)
        if size <= before["admissible"] or (slides and (short if last else size) <= free):
            return ADMITTED, count
        return (CAPACITY, size) if slides or short > free else (FRAGMENTED, short)

    def _room_behind(self, request: int) -> int:
        owners = self._owners()
        end = indices_end(owners.tolist(), request)
        return next((h.size for h in runs(owners.tolist()) if h.start == end), 0)

    def _last_owned(self, before: dict[str, Any]) -> int:
        owned = [slot for slot, owner in enumerate(before["owner"]) if owner != HOLE]
        return owned[-1] + 1

    def _release(self, request: int) -> None:
        self.layout.release(request)
        self._collect()
        del self.requests[request], self.values[request]
        assert not self.layout.holds(request)

    def _collect(self) -> int:
        """Take the journal of one operation; the slots it copies."""
        journal = self.layout.take_journal()
        self.journal += journal
        return sum(entry.size for entry in journal if isinstance(entry, Move))

    def _commit(self) -> None:
        """Carry out the journal, then write the step's tokens where they belong by now."""
        if isinstance(self.layout, Places):
            counts = [count for request, count in self.pending if request in self.requests]
            assert sum(self.layout.place()) == sum(counts)
            assert self.layout.place() == []
        self.store.apply(self.journal)
        written = {request: 0 for request, _ in self.pending}
        for request, count in self.pending:
            written[request] += count
        for request, count in written.items():
            if request not in self.requests:
                continue
            total = self.layout.written(request)
            positions = np.arange(total - count, total)
            slots = self._resolve(request, total)[-count:]
            serials = torch.tensor(self.values[request][-count:])
            values = serials[:, None, None, None, None] * self.numbers.numel() + self.numbers
            for layer in range(2):
                self.store.write(
                    layer,
                    torch.from_numpy(slots),
                    values[:, layer, 0].float(),
                    values[:, layer, 1].float(),
                )
            self.store.tag(slots, np.full(count, request), positions)
        self.journal, self.pending = [], []

    def _resolve(self, request: int, count: int) -> np.ndarray:
        """Slots of the first tokens by the address table's own definition."""
        table = self.layout.table
        line = table.array[table.row(request)]
        return np.array([line[i // table.piece] + i % table.piece for i in range(count)], np.int64)

    def _rounded(self, slots: int) -> int:
        return -(-slots // self.block) * self.block

    def _owners(self) -> np.ndarray:
        columns = self.layout.columns()
        return np.repeat(columns.owner, columns.size)

    def _everything(self) -> dict[str, Any]:
        """All that a question or a refusal must leave as it was."""
        layout, columns = self.layout, self.layout.columns()
        return {
            "free": layout.free,
            "admissible": layout.admissible,
            "journal": self._collect(),
            "entries": len(self.journal),
            "rows": [
                columns.start.tolist(),
                columns.size.tolist(),
                columns.used.tolist(),
                columns.owner.tolist(),
                columns.refs.tolist(),
            ],
            "owner": self._owners().tolist(),
            "slots": {r: indices(layout, r).tolist() for r in self.requests},
            "held": {r: (layout.held(r), layout.written(r)) for r in self.requests},
        }

    @invariant()
    def bookkeeping_is_sound(self) -> None:
        self.layout.check()
        columns, owners = self.layout.columns(), self._owners()
        assert columns.start.tolist() == [0, *np.cumsum(columns.size)[:-1].tolist()]
        assert len(owners) == self.layout.capacity
        holders = {r for r in self.requests if self.layout.held(r)}
        assert set(owners.tolist()) - {HOLE} == holders
        assert self.unified or holders == set(self.requests)
        assert self.layout.free == (owners[: self.usable] == HOLE).sum()
        assert (owners[self.usable :] == HOLE).all()
        assert columns.refs.tolist() == (columns.owner != HOLE).astype(int).tolist()
        assert not columns.used[columns.owner == HOLE].any()
        expected = self._largest(owners.tolist())
        assert self.layout.admissible == expected
        assert self.layout.fits(expected) and not self.layout.fits(expected + 1)
        for request in self.requests:
            mine = columns.owner == request
            assert columns.size[mine].sum() == self.layout.held(request)
            assert columns.used[mine].sum() == self.layout.written(request)
            assert self.layout.written(request) == len(self.values[request])

    def _largest(self, owners: list[int]) -> int:
        """The largest request that finds a place (adjacent cells: in one part)."""
        if self.split:
            return min(self.block, self.layout.free)
        if self.layout.paged:
            return self.layout.free
        return max((hole.size for hole in runs(owners)), default=0)

    @invariant()
    def tensors_hold_what_was_written(self) -> None:
        owners = self._owners()
        expected = np.full(self.store.slots, POISONED, np.int64)
        for request, serials in self.values.items():
            slots = self._resolve(request, len(serials))
            assert slots.tolist() == indices(self.layout, request).tolist()
            assert (owners[self._physical(request, slots)] == request).all()
            expected[slots] = (request << 32) + np.arange(len(serials))
            want = (
                torch.tensor(serials)[:, None, None, None, None] * self.numbers.numel()
                + self.numbers
            )
            where = self.layout.slots(request)
            index = where if isinstance(where, slice) else torch.from_numpy(where.astype(int))
            for layer in range(2):
                k, v = self.store.read(layer, index)
                assert torch.equal(k, want[:, layer, 0].float())
                assert torch.equal(v, want[:, layer, 1].float())
        assert self.store.written_map().tolist() == expected.tolist()

    @invariant()
    def memory_lies_under_the_mapped_pages_alone(self) -> None:
        if self.name != "virtual":
            return
        page = self.block * self.store.slot_bytes
        assert self.store.mapped_bytes == self.layout.mapped_pages * page
        assert self.layout.mapped_pages <= self.layout.pages
        held = sum(self.layout.held(request) for request in self.requests) // self.block
        assert self.layout.mapped_pages == held + self.layout.mapped_unused
        if self.config.virtual.reclaim == "immediate":
            assert self.layout.mapped_unused == 0
        begins = np.flatnonzero(self.store.mapped) * page
        of_system = {p for b in begins for p in range(b // OS_PAGE, -(-(b + page) // OS_PAGE))}
        assert self.store.resident_bytes == len(of_system) * OS_PAGE

    def _physical(self, request: int, slots: np.ndarray) -> np.ndarray:
        """Where the map shows these slots, the first ones of a request."""
        if self.name != "virtual":
            return slots
        at = np.arange(len(slots))
        return self.layout.frames(request)[at // self.block] * self.block + at % self.block


def indices_end(owners: list[int], request: int) -> int:
    """The slot behind a request's last one."""
    return len(owners) - owners[::-1].index(request)


EVERY = [(name, {}, SHAPE) for name in sorted(LAYOUTS)]
GROWING = [
    ("contiguous", {"contiguous.reservation": "exact", "contiguous.compaction": compaction}, SHAPE)
    for compaction in COMPACTIONS
]
PAGES = [("virtual", {}, WIDE)]


@pytest.mark.parametrize(("name", "pinned", "shape"), [*EVERY, *GROWING, *PAGES])
def test_layout_against_a_dict(name: str, pinned: dict[str, Any], shape: ModelShape) -> None:
    """A layout loses, mixes up or leaks slots, or a verdict does not tell the truth."""
    run_state_machine_as_test(
        lambda: CacheMachine(name, pinned, shape),
        settings=settings(max_examples=30, stateful_step_count=20),
    )
