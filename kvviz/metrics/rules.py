"""Rules and bounds for allocation in one piece: what theory says beside what is measured."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.metrics.holes import holes
from kvviz.records import Snapshot

ROBSON_UNIT = 16  # slots


@dataclass(frozen=True)
class FiftyPercent:
    """Holes a live region, beside what the rule expects; None where it can't be said.

    Knuth, TAOCP 1, 2.5: in equilibrium there are p / 2 holes a live region, p being the share
    of allocations that leave a remainder. A tendency, no law: it deviates both ways with the
    variation of lifetimes (Shore, CACM 20(11), 1977).
    """

    holes: int
    live: int
    measured: float | None
    expected: float | None


def fifty_percent(holes: int, live: int, remainder: int, allocations: int) -> FiftyPercent:
    """H / N beside p / 2, p = remainder / allocations."""
    return FiftyPercent(
        holes,
        live,
        holes / live if live else None,
        remainder / allocations / 2 if allocations else None,
    )


@dataclass(frozen=True)
class UnusedMemory:
    """Share of memory in holes: what the rule expects, and what is free."""

    mean_hole: float
    mean_live: float
    expected: float
    measured: float


def unused_share(k: float) -> float:
    """k / (k + 2), k = mean hole / mean live region (Denning, Computing Surveys 2(3), 1970).

    It follows from the fifty-percent rule with p = 1: N regions of s and N / 2 holes of k * s.
    """
    return k / (k + 2)


def unused_memory(snapshot: Snapshot) -> UnusedMemory | None:
    """The rule for the pool as it is; None while there is no hole or no live region."""
    c = snapshot.columns
    free, live = len(holes(snapshot)), c.live
    if not free or not live:
        return None
    hole, region = c.free / free, c.taken / live
    return UnusedMemory(
        hole, region, unused_share(hole / region), snapshot.free / snapshot.capacity
    )


@dataclass(frozen=True)
class Robson:
    """What must be there so that nothing is ever refused, without relocation.

    `live` (M) and `largest` (n) are in units of `unit` slots; `slots` is the bound in slots and
    `times` the bound over the live set.
    """

    unit: int
    live: int
    largest: int
    units: int

    @property
    def slots(self) -> int:
        return self.units * self.unit

    @property
    def times(self) -> float:
        return self.units / self.live


def robson_bound(live: int, largest: int) -> int:
    """M * (1 + log2(n) / 2) - n + 1 units, rounded up (Robson, JACM 21(3), 1974, 491-499).

    M = live >= largest = n, a power of two; both in units of the smallest request. Necessary
    for any allocator that does not move regions, and enough when all sizes are powers of two.
    """
    assert largest > 0 and not largest & (largest - 1), f"{largest} is no power of two"
    assert live >= largest, f"a region of {largest} can't be live in a live set of {live}"
    log2 = largest.bit_length() - 1
    return live - largest + 1 + -(-live * log2 // 2)


def robson(snapshot: Snapshot, largest: int, unit: int = ROBSON_UNIT) -> Robson | None:
    """The bound for the slots held now, and requests up to `largest` slots.

    n is rounded up to a power of two of units, but no request is larger than the live set.
    None when nothing is live.
    """
    live = -(-int(snapshot.seq_held.sum()) // unit)
    if not live:
        return None
    units = max(1, -(-largest // unit))
    n = min(1 << (units - 1).bit_length(), 1 << (live.bit_length() - 1))
    return Robson(unit, live, n, robson_bound(live, n))
