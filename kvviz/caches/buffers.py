"""Split buffers: the pool is cut into equal buffers once, and each serves one request.

    |aaaa......|..........|bbbbbbb...|cc........|   4 buffers, 3 requests

llama.cpp's split mode. A request waits for a free buffer, whole, and its life must fit in one;
what it does not write of it is wasted as long as it lives. Any free buffer will do, so nothing
is ever `fragmented`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz.caches.layout import AddressTable, Entry, Journal, classify
from kvviz.config import RunConfig
from kvviz.records import ADMITTED, HOLE, RESERVED, Columns, Freed, Request, Verdict


@dataclass(slots=True)
class _Holding:
    buffer: int
    written: int


class BuffersLayout:
    """See `caches.layout.Layout`. Slots behind the last whole buffer are never used."""

    paged = True
    single = True
    copies_on_write = False

    def __init__(self, config: RunConfig) -> None:
        self.capacity = config.memory.slots
        self.count = config.cells.buffers
        self.grain = self.capacity // self.count
        self.table = AddressTable(piece=self.capacity)
        self._free = list(range(self.count))
        self._held: dict[int, _Holding] = {}
        self._journal: Journal = []

    def reconfigure(self, config: RunConfig) -> None:
        """Nothing here changes without a restart."""

    @property
    def free(self) -> int:
        return len(self._free) * self.grain

    @property
    def admissible(self) -> int:
        return self.grain if self._free else 0

    def fits(self, count: int) -> bool:
        return count <= self.admissible

    def need(self, request: Request, tokens: int) -> int:
        return self.grain

    def question(self, request: Request, tokens: int) -> Verdict:
        need = max(self.grain, request.life)
        return classify(need, self.free, self.admissible, self.grain)

    def admit(self, request: Request, tokens: int) -> Verdict:
        verdict = self.question(request, tokens)
        if verdict.admitted:
            buffer = min(self._free)
            self._free.remove(buffer)
            self._held[request.id] = _Holding(buffer, 0)
            self.table.open(request.id)
            self.table.put(request.id, 0, buffer * self.grain)
        return verdict

    def append(self, request_id: int, count: int) -> Verdict:
        holding = self._held[request_id]
        total = holding.written + count
        if total > self.grain:
            return classify(total, self.free, self.admissible, self.grain)
        holding.written = total
        return Verdict(ADMITTED, count, self.free, self.admissible)

    def release(self, request_id: int) -> None:
        holding = self._held.pop(request_id)
        self._free.append(holding.buffer)
        self._journal.append(Freed(holding.buffer * self.grain, self.grain))
        self.table.close(request_id)

    def slots(self, request_id: int) -> slice:
        holding = self._held[request_id]
        start = holding.buffer * self.grain
        return slice(start, start + holding.written)

    def written(self, request_id: int) -> int:
        return self._held[request_id].written

    def holds(self, request_id: int) -> bool:
        return request_id in self._held

    def held(self, request_id: int) -> int:
        assert request_id in self._held, f"{request_id} has no buffer"
        return self.grain

    def note(self, entry: Entry) -> None:
        self._journal.append(entry)

    def take_journal(self) -> Journal:
        journal, self._journal = self._journal, []
        return journal

    def columns(self) -> Columns:
        """A row for each buffer, and one for the slots behind the last."""
        rest = self.capacity - self.count * self.grain
        rows = self.count + (rest > 0)
        start = np.arange(rows, dtype=np.int64) * self.grain
        size = np.full(rows, self.grain, np.int64)
        if rest:
            size[-1] = rest
        used = np.zeros(rows, np.int64)
        owner = np.full(rows, HOLE, np.int64)
        owner[self.count :] = RESERVED
        for request_id, holding in self._held.items():
            used[holding.buffer] = holding.written
            owner[holding.buffer] = request_id
        return Columns(start, size, used, owner, (owner != HOLE).astype(np.int64))

    def check(self) -> None:
        taken = [holding.buffer for holding in self._held.values()]
        every = sorted(taken + self._free)
        assert every == list(range(self.count)), (
            f"the accounting is broken: {len(taken)} buffers taken + {len(self._free)} free "
            f"are not each of the {self.count} once"
        )
        for request_id, holding in self._held.items():
            assert holding.written <= self.grain, f"{request_id} outgrew its buffer"
            start = self.table.array[self.table.row(request_id), 0]
            assert start == holding.buffer * self.grain, f"{request_id}: address table is stale"
