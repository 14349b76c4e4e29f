"""Unified cells: all requests share one row of cells, and a cell holds one token.

    cells   a a b a b b . . a . b .          one unit a token, in any order
    table   a: 0 1 3 8    b: 2 4 5 10

As in llama.cpp, where a whole batch is placed at once: `append` only claims cells, and `place`,
called once a step when all claims of the step are known, says which ones. With placement
`adjacent` the batch needs neighbours, and is halved until its parts find some; every part is a
forward pass of its own, which is what fragmentation costs here. With `scattered` any free cells
will do. Either way a request is refused only when cells run short.
"""

from __future__ import annotations

from itertools import repeat
from typing import NamedTuple

import numpy as np

from kvviz.caches.halving import place_batch
from kvviz.caches.layout import AddressTable, Entry, Journal, classify
from kvviz.config import RunConfig
from kvviz.records import ADMITTED, HOLE, Columns, Freed, Request, Verdict


class _Holes(NamedTuple):
    """(start, size) int64 [holes, 2] in address order, and the largest size."""

    rows: np.ndarray
    largest: int


def _runs(cells: np.ndarray) -> np.ndarray:
    """(start, size) int64 [runs, 2] of ascending cell numbers."""
    first = np.flatnonzero(np.diff(cells, prepend=-2) > 1)
    return np.column_stack([cells[first], np.diff(first, append=len(cells))]).astype(np.int64)


def _holes(owner: np.ndarray) -> _Holes:
    rows = _runs(np.flatnonzero(owner == HOLE))
    return _Holes(rows, int(rows[:, 1].max(initial=0)))


class CellsLayout:
    """See `caches.layout.Layout` and `Places`. `owner` int64 [capacity] is the bookkeeping.

    A claim counts as held and is not free, but shows in `columns` and `written` only when it is
    placed. `admissible` is the largest batch that one forward pass takes.
    """

    grain = 1
    copies_on_write = False
    swaps = False

    def __init__(self, config: RunConfig) -> None:
        self.capacity = config.memory.slots
        self.table = AddressTable(piece=1, width=64)
        self._owner = np.full(self.capacity, HOLE, np.int64)
        self._used = 0
        self._requests: set[int] = set()
        # By line of the table: whose it is, cells written, and cells claimed by this step
        self._who, self._written, self._waits = np.zeros((3, len(self.table.array)), np.int64)
        self._claims: list[tuple[int, int]] = []  # (line, cells)
        self._claimed = 0
        self._found: _Holes | None = None
        self._journal: Journal = []
        self.reconfigure(config)

    def reconfigure(self, config: RunConfig) -> None:
        self.paged = config.cells.placement == "scattered"
        self._batch = config.engine.token_budget

    @property
    def free(self) -> int:
        return self.capacity - self._used - self._claimed

    @property
    def admissible(self) -> int:
        if self.paged:
            return self.free
        return min(self.free, self._holes.largest)

    def fits(self, count: int) -> bool:
        return count <= self.admissible

    def need(self, request: Request, tokens: int) -> int:
        return tokens

    def question(self, request: Request, tokens: int) -> Verdict:
        # A life that can't ever fit would preempt itself for ever, so it is told at once.
        return self._verdict(max(tokens, request.life) if request.life > self.capacity else tokens)

    def admit(self, request: Request, tokens: int) -> Verdict:
        """Nothing is claimed yet: cells are claimed by the tokens that a step writes."""
        verdict = self.question(request, tokens)
        if verdict.admitted:
            self._requests.add(request.id)
            self.table.open(request.id)
            line = self.table.row(request.id)
            if line >= len(self._who):
                more = np.zeros((3, len(self.table.array) - len(self._who)), np.int64)
                columns = np.stack([self._who, self._written, self._waits])
                self._who, self._written, self._waits = np.concatenate([columns, more], axis=1)
            self._who[line], self._written[line], self._waits[line] = request.id, 0, 0
        return verdict

    def append(self, request_id: int, count: int) -> Verdict:
        free = self.free
        if count > free:
            return self._verdict(count)
        if count:
            line = self.table.row(request_id)
            self._waits[line] += count
            self._claims.append((line, count))
            self._claimed += count
        return Verdict(ADMITTED, count, free - count, self.admissible)

    def append_each(self, lines: np.ndarray) -> bool:
        """One more token for each of these lines of the table, or False and nothing is changed:
        cells run short."""
        if len(lines) > self.free:
            return False
        self._waits[lines] += 1
        self._claims += zip(lines.tolist(), repeat(1))
        self._claimed += len(lines)
        return True

    def place(self) -> list[int]:
        """Give all claims their cells, in the order in which they were claimed.

        The sizes of the parts in which they found a place, together the number of tokens claimed.
        """
        if not self._claimed:
            return []
        cells, parts = self._find(self._claimed)
        lines, counts = np.array(self._claims, np.int64).T
        line, first = np.repeat(lines, counts), np.cumsum(counts) - counts
        # A line that claims twice goes on where its first claim ends
        at = self._written[lines] + _claimed_before(lines, counts)
        token = np.repeat(at - first, counts) + np.arange(len(cells))
        self.table.widen(int(token.max()) + 1)
        self.table.array[line, token] = cells
        self._owner[cells] = self._who[line]
        np.add.at(self._written, lines, counts)
        self._waits[lines] = 0
        self._used += len(cells)
        self._claims, self._claimed = [], 0
        self._found = None
        return parts

    def release(self, request_id: int) -> None:
        line = self.table.row(request_id)
        cells = np.sort(self.slots(request_id))
        self._requests.remove(request_id)
        self.table.close(request_id)
        if self._waits[line]:
            self._claims = [claim for claim in self._claims if claim[0] != line]
            self._claimed -= int(self._waits[line])
        self._owner[cells] = HOLE
        self._used -= len(cells)
        self._written[line] = self._waits[line] = 0
        self._found = None
        self._journal += [Freed(*run) for run in _runs(cells).tolist()]

    def slots(self, request_id: int) -> np.ndarray:
        return self.table.array[self.table.row(request_id), : self.written(request_id)].copy()

    def written(self, request_id: int) -> int:
        return int(self._written[self.table.row(request_id)])

    def holds(self, request_id: int) -> bool:
        return request_id in self._requests

    def held(self, request_id: int) -> int:
        return self.written(request_id) + int(self._waits[self.table.row(request_id)])

    def sizes_each(self, lines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each of these lines of the table: (cells written, cells held), int64 [n] each."""
        written = self._written[lines]
        return written, written + self._waits[lines]

    def note(self, entry: Entry) -> None:
        self._journal.append(entry)

    def take_journal(self) -> Journal:
        journal, self._journal = self._journal, []
        return journal

    def columns(self) -> Columns:
        """A row for each longest run of cells with one owner, or with none."""
        start = np.append(0, np.flatnonzero(np.diff(self._owner)) + 1)
        size = np.diff(start, append=self.capacity)
        owner = self._owner[start]
        refs = (owner != HOLE).astype(np.int64)
        return Columns(start, size, size * refs, owner, refs)

    def check(self) -> None:
        owned = int(np.count_nonzero(self._owner != HOLE))
        holes = int(self._holes.rows[:, 1].sum())
        written = int(self._written.sum())
        broken = "the accounting is broken:"
        assert self._used == owned, f"{broken} {self._used} cells used, {owned} have an owner"
        assert owned == written, f"{broken} {owned} cells have an owner, {written} are written"
        assert holes + self._used == self.capacity, (
            f"{broken} holes of {holes} + {self._used} used != {self.capacity} cells"
        )
        claims = sum(count for _, count in self._claims)
        claimed = int(self._waits.sum())
        assert self._claimed == claims == claimed, (
            f"{broken} {self._claimed} cells claimed, {claims} in the list, {claimed} by requests"
        )
        owner = np.full(self.capacity, HOLE, np.int64)
        for request_id in self._requests:
            cells = self.slots(request_id)
            inside = (cells >= 0) & (cells < self.capacity)
            assert inside.all(), f"{request_id} has a cell of nowhere"
            owner[cells] = request_id
        assert np.array_equal(owner, self._owner), "owners and address tables disagree"

    @property
    def _holes(self) -> _Holes:
        """Looked for when they are asked for, once after any number of releases: a pass over all
        cells."""
        if self._found is None:
            self._found = _holes(self._owner)
        return self._found

    def _verdict(self, need: int) -> Verdict:
        """Never `fragmented`: in parts of 1 a batch fits wherever cells are free."""
        verdict = classify(need, self.free, self.free, self.capacity)
        return verdict._replace(largest=self.admissible)

    def _find(self, count: int) -> tuple[np.ndarray, list[int]]:
        """Free cells [count] in the order of the claims, and the sizes of the parts."""
        if self.paged:
            return np.flatnonzero(self._owner == HOLE)[:count], [count]
        placement = place_batch(self._holes.rows, count, self._batch)
        assert not placement.left, f"{count} free cells were promised, {placement.left} are missing"
        start, size = np.array(placement.regions, np.int64).T
        return np.repeat(start - (np.cumsum(size) - size), size) + np.arange(count), placement.parts


def _claimed_before(lines: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Cells that the same line claims earlier in the list, int64 [claims]."""
    order = np.argsort(lines, kind="stable")
    ends = np.cumsum(counts[order])
    first = np.diff(lines[order], prepend=-1) != 0
    before = ends - counts[order]
    found = np.empty_like(before)
    found[order] = before - np.repeat(
        before[first], np.diff(np.flatnonzero(first), append=len(lines))
    )
    return found
