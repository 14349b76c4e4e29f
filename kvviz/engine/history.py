"""Every step of a lane, kept small: a whole snapshot now and then, and what changed in between.

Most of a step is foreseen: each running sequence writes one token. What is kept of it is what
was not (rows that came and went, cells that differ), packed and compressed. The oldest steps are
dropped when the budget is spent.
"""

from __future__ import annotations

import pickle
import zlib
from bisect import bisect_right
from collections import deque
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from kvviz.engine.deltas import Table, edit, patch, same
from kvviz.records import Columns, Counters, Snapshot, Verdict

BUDGET_BYTES = 48 << 20  # a lane
KEYFRAME_STEPS = 16
_OVERHEAD = 48  # of a bytes object and its place in a list
_COUNTERS = tuple(f.name for f in fields(Counters))
_SEQ = ("seq_id", "seq_used", "seq_life", "seq_held", "seq_prompt", "seq_since")
_WAITING = ("waiting_id", "waiting_need")
_DROPPED = ("dropped_id",)


class _State(NamedTuple):
    """A snapshot in parts: tables of integers, and the rest, which is small."""

    tables: tuple[Table, ...]
    rest: tuple[Any, ...]


class _Group:
    """Steps [first, first + len(frames)): the first frame is whole, each other one changes the
    one before it."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.frames: list[bytes] = []
        self.nbytes = 0

    def add(self, frame: bytes) -> None:
        self.frames.append(frame)
        self.nbytes += len(frame) + _OVERHEAD


class History:
    """Snapshots of one lane at consecutive steps, in at most `budget_bytes` (but for the newest
    step, which is always there). For one thread."""

    def __init__(
        self, budget_bytes: int = BUDGET_BYTES, keyframe_steps: int = KEYFRAME_STEPS
    ) -> None:
        self.budget_bytes = budget_bytes
        self.nbytes = 0
        self.dropped = 0
        self._every = keyframe_steps
        self._groups: deque[_Group] = deque()
        self._newest: _State | None = None
        self._kinds: tuple[str, ...] = ()
        self._last = -1
        self._decoded: tuple[_Group, int, _State] | None = None

    def __len__(self) -> int:
        return self._last - self.first + 1 if self._groups else 0

    @property
    def first(self) -> int:
        """The oldest step that is kept; -1 when there is none."""
        return self._groups[0].first if self._groups else -1

    @property
    def last(self) -> int:
        """The newest step; -1 when there is none."""
        return self._last

    @property
    def keyframes(self) -> list[int]:
        """Steps that are kept whole, and so are the quickest to give back."""
        return [group.first for group in self._groups]

    def add(self, snapshot: Snapshot) -> None:
        """The snapshot of the step after `last`."""
        assert self._last in (-1, snapshot.step - 1), f"step {snapshot.step} after {self._last}"
        state = _state(snapshot)
        kinds = tuple(column.dtype.str for table in state.tables for column in table)
        if self._begins_group() or kinds != self._kinds:
            self._kinds = kinds
            self._groups.append(_Group(snapshot.step))
            before = _nothing(state)
            head = kinds
        else:
            assert self._newest is not None
            before, head = self._newest, None
        frame = _encode(before, state, head)
        self._groups[-1].add(frame)
        self.nbytes += len(frame) + _OVERHEAD
        self._newest, self._last = state, snapshot.step
        self._shrink()

    def at(self, step: int) -> Snapshot:
        """The snapshot that was added for this step. Raises KeyError when it is not kept."""
        if not self._groups or not self.first <= step <= self._last:
            raise KeyError(f"step {step} is not kept: steps {self.first} to {self._last} are")
        group = self._groups[bisect_right(self._groups, step, key=lambda g: g.first) - 1]
        at, state, kinds = -1, None, _kinds_of(group.frames[0])
        if self._decoded and self._decoded[0] is group and self._decoded[1] <= step - group.first:
            _, at, state = self._decoded
        for frame in group.frames[at + 1 : step - group.first + 1]:
            state = _decode(state, frame)
        assert state is not None
        self._decoded = group, step - group.first, state
        return _snapshot(state, kinds)

    def prepend(self, earlier: History) -> None:
        """Take the steps of another history, which end where these begin. It is spent by that."""
        assert earlier.last == self.first - 1, f"steps to {earlier.last} before {self.first}"
        self._groups.extendleft(reversed(earlier._groups))
        self.nbytes += earlier.nbytes
        self._shrink()

    def _begins_group(self) -> bool:
        if not self._groups:
            return True
        newest = self._groups[-1]
        return len(newest.frames) >= self._every or newest.nbytes > self.budget_bytes // 8

    def _shrink(self) -> None:
        while self.nbytes > self.budget_bytes and len(self._groups) > 1:
            oldest = self._groups.popleft()
            self.nbytes -= oldest.nbytes
            self.dropped += len(oldest.frames)
            if self._decoded and self._decoded[0] is oldest:
                self._decoded = None


def _grown(columns: Table) -> Table:
    """Rows that are being written get one more slot."""
    start, size, used, owner, *others = columns
    more = (owner >= 0) & (used > 0) & (used < size)
    return (start, size, used + more, owner, *others)


def _written(sequences: Table) -> Table:
    """Each running sequence writes a token."""
    request, used, *others = sequences
    return (request, used + 1, *others)


_PREDICTIONS = (_grown, _written, same, same)


def _encode(before: _State, state: _State, head: tuple[str, ...] | None) -> bytes:
    edits = [
        edit(old, new, predict)
        for old, new, predict in zip(before.tables, state.tables, _PREDICTIONS, strict=True)
    ]
    return zlib.compress(pickle.dumps((head, state.rest, edits), 5), 1)


def _decode(before: _State | None, frame: bytes) -> _State:
    head, rest, edits = pickle.loads(zlib.decompress(frame))
    if head is not None:
        width = len(head)
        before = _State(tuple(_empty(n) for n in (width - 9, 6, 2, 1)), ())
    assert before is not None
    tables = tuple(
        patch(old, edit, predict)
        for old, edit, predict in zip(before.tables, edits, _PREDICTIONS, strict=True)
    )
    return _State(tables, rest)


def _kinds_of(frame: bytes) -> tuple[str, ...]:
    return pickle.loads(zlib.decompress(frame))[0]


def _nothing(state: _State) -> _State:
    return _State(tuple(_empty(len(table)) for table in state.tables), ())


def _empty(columns: int) -> Table:
    return tuple(np.zeros(0, np.int64) for _ in range(columns))


def _state(s: Snapshot) -> _State:
    c = s.columns
    columns: Table = (c.start, c.size, c.used, c.owner, c.refs)
    if c.cached is not None:
        columns = (*columns, c.cached)
    tables = (
        columns,
        tuple(getattr(s, name) for name in _SEQ),
        tuple(getattr(s, name) for name in _WAITING),
        tuple(getattr(s, name) for name in _DROPPED),
    )
    own = s.counters
    counters = tuple(
        tuple(own.refused.items()) if name == "refused" else getattr(own, name)
        for name in _COUNTERS
    )
    head = None if s.head is None else tuple(s.head)
    rest = (s.step, s.seconds, s.capacity, s.grain, s.paged, s.slot_bytes, s.admissible)
    return _State(tables, (rest, head, counters, tuple(s.extras.items()), s.single))


def _snapshot(state: _State, kinds: tuple[str, ...]) -> Snapshot:
    rest: tuple[int, float, int, int, bool, int, int]
    rest, head, counters, extras, single = state.rest
    arrays = [
        column.astype(kind)
        for column, kind in zip((c for t in state.tables for c in t), kinds, strict=True)
    ]
    width = len(state.tables[0])
    *sequences, waiting_id, waiting_need, dropped_id = arrays[width:]
    totals = dict(zip(_COUNTERS, counters, strict=True))
    totals["refused"] = dict(totals["refused"])
    return Snapshot(
        *rest,
        Columns(*arrays[:width]),
        *sequences,
        waiting_id=waiting_id,
        waiting_need=waiting_need,
        dropped_id=dropped_id,
        head=None if head is None else Verdict(*head),
        counters=Counters(**totals),
        extras=dict(extras),
        single=single,
    )
