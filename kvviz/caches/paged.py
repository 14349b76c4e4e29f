"""Paged layout: fixed-size blocks in any order, and a block table that puts them in order.

    logical    0 1 2 | 3 4 5 | 6 . .          block size 3, 7 tokens
    physical   block 9, block 2, block 5      two slots of block 5 are the tail

A request is admitted when enough blocks are free for the tokens known now; it takes one more
block each time it crosses a block boundary. Any free block will do, so a refusal is never
`fragmented`; what paging wastes is the tail of each sequence's last block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz.allocators.blocks import BlockPool
from kvviz.caches.layout import AddressTable, Journal, classify
from kvviz.config import RunConfig
from kvviz.records import ADMITTED, HOLE, Columns, Freed, Request, Verdict


@dataclass(slots=True)
class _Holding:
    blocks: int
    written: int


class PagedLayout:
    """See `caches.layout.Layout`. Slots behind the last whole block are never used."""

    paged = True

    def __init__(self, config: RunConfig) -> None:
        self.grain = config.paged.block_size
        self.capacity = config.memory.slots
        self._pool = BlockPool(self.capacity // self.grain)
        self.table = AddressTable(piece=self.grain, width=16)
        self._held: dict[int, _Holding] = {}
        self._journal: Journal = []

    def reconfigure(self, config: RunConfig) -> None:
        """Nothing here changes without a restart."""

    @property
    def free(self) -> int:
        return self._pool.free_blocks * self.grain

    @property
    def admissible(self) -> int:
        return self.free

    @property
    def usable(self) -> int:
        """Slots in whole blocks."""
        return self._pool.count * self.grain

    def fits(self, count: int) -> bool:
        return self._rounded(count) <= self.free

    def need(self, request: Request, tokens: int) -> int:
        return self._rounded(tokens)

    def question(self, request: Request, tokens: int) -> Verdict:
        need = self.need(request, tokens)
        # Admission looks at the tokens known now, but a life that can't ever fit would
        # preempt itself for ever, so it is told at once.
        if self._rounded(request.life) > self.usable:
            need = max(need, self._rounded(request.life))
        return classify(need, self.free, self.free, self.usable)

    def admit(self, request: Request, tokens: int) -> Verdict:
        verdict = self.question(request, tokens)
        if verdict.admitted:
            self._held[request.id] = _Holding(0, 0)
            self.table.open(request.id)
            self._take(request.id, verdict.need // self.grain)
        return verdict

    def append(self, request_id: int, count: int) -> Verdict:
        holding = self._held[request_id]
        short = -(-(holding.written + count) // self.grain) - holding.blocks
        if short > self._pool.free_blocks:
            return classify(short * self.grain, self.free, self.free, self.usable)
        if short > 0:
            self._take(request_id, short)
        holding.written += count
        return Verdict(ADMITTED, max(short, 0) * self.grain, self.free, self.free)

    def release(self, request_id: int) -> None:
        freed = self._pool.drop(self._blocks(request_id))
        del self._held[request_id]
        self.table.close(request_id)
        self._journal += [Freed(int(block) * self.grain, self.grain) for block in freed]

    def slots(self, request_id: int) -> np.ndarray:
        starts = self._blocks(request_id) * self.grain
        every = (starts[:, None] + np.arange(self.grain, dtype=np.int32)).reshape(-1)
        return every[: self._held[request_id].written]

    def written(self, request_id: int) -> int:
        return self._held[request_id].written

    def holds(self, request_id: int) -> bool:
        return request_id in self._held

    def held(self, request_id: int) -> int:
        return self._held[request_id].blocks * self.grain

    def block_table(self, request_id: int) -> np.ndarray:
        """Physical block ids in logical order, int32 [blocks]."""
        return self._blocks(request_id).copy()

    def take_journal(self) -> Journal:
        journal, self._journal = self._journal, []
        return journal

    def columns(self) -> Columns:
        count = self._pool.count
        used = np.zeros(count, np.int64)
        owner = np.full(count, HOLE, np.int64)
        for request_id, holding in self._held.items():
            ids = self._blocks(request_id)
            owner[ids] = request_id
            full, tail = divmod(holding.written, self.grain)
            used[ids[:full]] = self.grain
            if tail:
                used[ids[full]] = tail
        start = np.arange(count, dtype=np.int64) * self.grain
        size = np.full(count, self.grain, np.int64)
        refs = self._pool.refs.astype(np.int64)
        rest = self.capacity - self.usable
        if rest:  # slots behind the last whole block: a hole that no block covers
            start, size = np.append(start, self.usable), np.append(size, rest)
            used, owner = np.append(used, 0), np.append(owner, HOLE)
            refs = np.append(refs, 0)
        return Columns(start, size, used, owner, refs)

    def check(self) -> None:
        self._pool.check()
        refs = np.zeros(self._pool.count, np.int32)
        for request_id, holding in self._held.items():
            ids = self._blocks(request_id)
            assert len(np.unique(ids)) == len(ids), f"{request_id} holds a block twice"
            assert holding.written <= holding.blocks * self.grain, f"{request_id} overflows"
            refs[ids] += 1
        assert np.array_equal(refs, self._pool.refs), "ref counts and block tables disagree"

    def _rounded(self, slots: int) -> int:
        return -(-slots // self.grain) * self.grain

    def _blocks(self, request_id: int) -> np.ndarray:
        row = self.table.array[self.table.row(request_id)]
        return row[: self._held[request_id].blocks] // self.grain

    def _take(self, request_id: int, count: int) -> None:
        holding = self._held[request_id]
        ids = self._pool.take(count)
        assert ids is not None, f"{count} free blocks were promised"
        self.table.put(request_id, holding.blocks, ids * self.grain, count)
        holding.blocks += count
