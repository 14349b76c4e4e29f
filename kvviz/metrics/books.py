"""Books that must balance: what is used, free, cached and set aside makes the whole pool."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.records import Snapshot


@dataclass(frozen=True)
class Books:
    """All in one unit. `null` is what is set aside for good, as vLLM's block 0."""

    used: int
    free: int
    cached: int
    null: int
    total: int

    @property
    def counted(self) -> int:
        return self.used + self.free + self.cached + self.null

    @property
    def difference(self) -> int:
        """Below 0: lost (a deficit). Above 0: freed or counted twice (a surplus)."""
        return self.counted - self.total

    @property
    def balanced(self) -> bool:
        return self.difference == 0


def balance(used: int, free: int, total: int, *, cached: int = 0, null: int = 0) -> Books:
    """used + free + cached + null beside the total."""
    return Books(used, free, cached, null, total)


def balance_of(snapshot: Snapshot, cached: int = 0) -> Books:
    """What the running requests say they hold, beside the holes that the layout shows.

    A block with several holders counts once. `cached` slots are kept for a possible second use
    and may be taken at any time, so they are among the holes; here they stand apart.
    """
    c = snapshot.columns
    used = int(snapshot.seq_held.sum()) - c.again
    return balance(used, c.free - cached, snapshot.capacity, cached=cached, null=c.reserved)


def usage_gauge(free: int, total: int) -> float:
    """1 - free / total, held in [0, 1]: books that do not balance (free > total after a double
    free) are an alarm of `Books`, no usage below zero."""
    return min(max(1 - free / total, 0.0), 1.0)
