"""Block tables of the past: which slots held a request's tokens, in the order of the tokens.

A snapshot says who owns a slot, not the how-manyth token lies there. Tables mostly grow at their
end, so what is kept of a request is a list of changes: from this step on, these pieces from this
place on.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

import numpy as np

from kvviz.caches.layout import Layout

BUDGET_BYTES = 4 << 20  # a lane
_OVERHEAD = 640  # of the objects of one request
_CHANGE = 20  # of one change, besides 4 for each piece in it


class _Life:
    """The changes of one request's table: `pieces[ends[i - 1]:ends[i]]` stand from index `ats[i]`
    on since `steps[i]`, and nothing behind them."""

    def __init__(self) -> None:
        self.steps, self.ats, self.ends = array("q"), array("i"), array("i")
        self.pieces = array("i")

    def add(self, step: int, at: int, starts: np.ndarray) -> None:
        self.steps.append(step)
        self.ats.append(at)
        self.pieces.extend(starts.tolist())
        self.ends.append(len(self.pieces))

    def at(self, step: int) -> np.ndarray | None:
        """First slots of the pieces, int32 [pieces]; None before the first change."""
        changes = bisect_right(self.steps, step)
        if not changes:
            return None
        found = np.zeros(len(self.pieces), np.int32)
        count = begin = 0
        for at, end in zip(self.ats[:changes], self.ends[:changes], strict=True):
            count = at + end - begin
            found[at:count] = self.pieces[begin:end]
            begin = end
        return found[:count]

    @property
    def nbytes(self) -> int:
        return _OVERHEAD + _CHANGE * len(self.steps) + 4 * len(self.pieces)


class Orders:
    """Of one lane, in about `budget_bytes`: the tables of those who ended first go first. The
    tables of those who run are always there."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self.budget_bytes = budget_bytes
        self.nbytes = 0
        self._piece = 1
        self._step = -1
        self._lives: dict[int, _Life] = {}
        self._ended: deque[tuple[int, int]] = deque()  # last step, request
        self._last: dict[int, int] = {}
        self._before = np.zeros((0, 0), np.int32), np.zeros(0, np.int64)
        self._where: dict[int, int] = {}

    def add(self, step: int, layout: Layout, requests: Sequence[int], written: np.ndarray) -> None:
        """The step that was just made: who runs, and the tokens written of each."""
        now, counts, self._piece = _tables(layout, requests, written)
        old = np.array([self._where.get(request, -1) for request in requests], np.int64)
        before, known = self._before
        known = np.where(old >= 0, known[old], 0) if len(known) else np.zeros(len(old), np.int64)
        width = min(now.shape[1], before.shape[1])
        differs = np.zeros((len(now), width), bool)
        if width:
            inside = np.arange(width) < np.minimum(counts, known)[:, None]
            differs = (now[:, :width] != before[old, :width]) & inside
        for i in np.flatnonzero(differs.any(axis=1) | (counts != known) | (old < 0)).tolist():
            at = int(differs[i].argmax()) if differs[i].any() else int(min(counts[i], known[i]))
            self._note(step, requests[i], at, now[i, at : counts[i]])
        for request in self._where.keys() - set(requests):
            self._last[request] = step - 1
            self._ended.append((step - 1, request))
        self._step = step
        self._where = {request: i for i, request in enumerate(requests)}
        self._before = now, counts
        while self.nbytes > self.budget_bytes and self._ended:
            self._drop()

    def slots(self, step: int, request: int, written: int) -> np.ndarray | None:
        """The slots of its first `written` tokens at this step, in their order; None when that
        is not known any more."""
        life = self._lives.get(request)
        starts = None if life is None else life.at(step)
        if starts is None or len(starts) * self._piece < written:
            return None
        piece = np.arange(min(self._piece, max(written, 1)), dtype=np.int32)
        return (starts[:, None] + piece).reshape(-1)[:written]

    def forget(self, first: int) -> None:
        """Steps below this one are no longer kept elsewhere."""
        while self._ended and self._ended[0][0] < first:
            self._drop()

    def prepend(self, earlier: Orders) -> None:
        """Take the tables of the same run's steps before the first one here."""
        running = set(earlier._where)
        ends = [*earlier._ended, *((earlier._step, r) for r in running - self._lives.keys())]
        for request, life in earlier._lives.items():
            own = self._lives.get(request)
            if own is not None:  # its first change here is a whole table
                self.nbytes -= own.nbytes
                for at, (step, place) in enumerate(zip(own.steps, own.ats, strict=True)):
                    begin = own.ends[at - 1] if at else 0
                    life.add(step, place, np.array(own.pieces[begin : own.ends[at]], np.int32))
            self._lives[request] = life
            self.nbytes += life.nbytes
        for step, request in reversed(ends):
            self._ended.appendleft((step, request))
            self._last.setdefault(request, step)
        while self.nbytes > self.budget_bytes and self._ended:
            self._drop()

    def _note(self, step: int, request: int, at: int, starts: np.ndarray) -> None:
        life = self._lives.get(request)
        if life is None:
            life = self._lives[request] = _Life()
            self.nbytes += _OVERHEAD
        life.add(step, at, starts)
        self.nbytes += _CHANGE + 4 * len(starts)

    def _drop(self) -> None:
        step, request = self._ended.popleft()
        if request in self._where or self._last.get(request) != step:
            return  # it came back: a later entry is for its end
        del self._last[request]
        self.nbytes -= self._lives.pop(request).nbytes


def _tables(
    layout: Layout, requests: Sequence[int], written: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    """First slots of the pieces int32 [requests, pieces], how many of each row count, and the
    slots of a piece. Mapped memory has its frames for pieces: its addresses are no slots."""
    frames = getattr(layout, "frames", None)
    piece = layout.page_slots if frames else layout.table.piece  # type: ignore[attr-defined]
    counts = -(-np.asarray(written, np.int64) // piece)
    width = int(counts.max(initial=0))
    if frames is None:
        rows = np.array([layout.table.row(request) for request in requests], np.int64)
        return layout.table.array[rows, :width], counts, piece
    found = np.zeros((len(requests), width), np.int32)
    for line, request, count in zip(found, requests, counts.tolist(), strict=True):
        line[:count] = frames(request)[:count] * piece
    return found, counts, piece
