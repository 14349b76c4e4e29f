"""What changed between two recorded steps. Both sides tile the pool, so the rows that are new
tell all: an old row is gone exactly when a new one lies over it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz.records import Columns


@dataclass(frozen=True)
class Rows:
    """Rows in address order, int64 [rows] each. `cached` is 0 where a layout keeps no count."""

    start: np.ndarray
    size: np.ndarray
    used: np.ndarray
    owner: np.ndarray
    refs: np.ndarray
    cached: np.ndarray

    @classmethod
    def of(cls, c: Columns) -> Rows:
        cached = np.zeros_like(c.start) if c.cached is None else c.cached
        return cls(c.start, c.size, c.used, c.owner, c.refs, cached)

    def columns(self, *, cached: bool) -> Columns:
        """As a layout gives them."""
        return Columns(
            self.start, self.size, self.used, self.owner, self.refs, self.cached if cached else None
        )

    def take(self, which: np.ndarray) -> Rows:
        return Rows(*(column[which] for column in vars(self).values()))

    @property
    def end(self) -> np.ndarray:
        return self.start + self.size


EMPTY = Rows(*(np.zeros(0, np.int64),) * 6)


def new_rows(old: Rows, new: Rows) -> np.ndarray:
    """Which rows of `new` are not in `old`, bool [rows]."""
    if not len(old.start):
        return np.ones(len(new.start), bool)
    at = _place(old.start, new.start)
    same = np.ones(len(new.start), bool)
    for before, now in zip(vars(old).values(), vars(new).values(), strict=True):
        same &= before[at] == now
    return ~same


def replaced(old: Rows, new: Rows) -> Rows:
    """`old` with the rows of `new` laid over it: what lies under them, even in part, is gone."""
    if not len(new.start) or not len(old.start):
        return new if len(new.start) else old
    last = np.searchsorted(new.start, old.end) - 1  # the last new row that starts before its end
    covered = (last >= 0) & (new.end[np.maximum(last, 0)] > old.start)
    kept = old.take(~covered)
    order = np.argsort(np.concatenate([kept.start, new.start]), kind="stable")
    both = zip(vars(kept).values(), vars(new).values(), strict=True)
    return Rows(*(np.concatenate(pair)[order] for pair in both))


def used_before(old: Rows, new: Rows) -> np.ndarray:
    """For each new row the slots written in the old one of the same start and owner, else 0:
    what is added in a step is one slot nearly everywhere, and packs well."""
    if not len(old.start):
        return np.zeros(len(new.start), np.int64)
    at = _place(old.start, new.start)
    same = (old.start[at] == new.start) & (old.owner[at] == new.owner)
    return np.where(same, old.used[at], 0)


def tokens_before(old_ids: np.ndarray, old_used: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """For each running request the slots it had written in the step before, 0 for a new one."""
    if not len(old_ids):
        return np.zeros(len(ids), np.int64)
    order = np.argsort(old_ids, kind="stable")
    at = order[_place(old_ids[order], ids)]
    return np.where(old_ids[at] == ids, old_used[at], 0)


def _place(sorted_: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    return np.minimum(np.searchsorted(sorted_, wanted), len(sorted_) - 1)
