"""What every contiguous allocator can do.

An allocator hands out runs of slots of one pool. Free slots that touch no other free slot's run
are a hole; how holes are kept, searched and merged is what the allocators differ in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from kvviz.errors import ConfigError
from kvviz.records import Region

COALESCE = ("immediate", "deferred")
ORDERS = ("address", "lifo")

Plan = list[tuple[Region, int]]
"""(region where it then lies, new start), in an order in which the copies are safe: none of them
overwrites slots that are still to be copied. A region may overlap its own new place."""


class Allocator(Protocol):
    """Questions change nothing; a refused call leaves everything as it was.

    capacity: slots in the pool. free_slots: those in no live region.
    largest_possible: the largest request that an empty pool grants; a larger one can never be.
    can_slide: live regions may lie anywhere, so that a slide is a valid `relocate`.
    allocations, remainders: requests granted so far, and how many of them left a part of their
    hole over (Knuth's p is remainders / allocations). Growth in place is not counted.
    """

    capacity: int
    free_slots: int
    largest_possible: int
    can_slide: bool
    allocations: int
    remainders: int

    @property
    def largest(self) -> int:
        """The largest request that would be granted now; 0 when none would."""

    @property
    def hole_count(self) -> int:
        """How many rows `holes` has."""

    def granted(self, size: int) -> int:
        """Slots that a request of `size` really takes, rounding included."""

    def hole_for(self, size: int) -> int:
        """The smallest hole in which a request of `size` is always found."""

    def fits(self, size: int) -> bool:
        """Would `allocate(size)` grant it?"""

    def allocate(self, size: int) -> Region | None:
        """A region of `granted(size)` slots, or None when no place is found."""

    def extend(self, region: Region, extra: int) -> Region | None:
        """Grow in place by at least `extra` slots; None when what lies behind does not allow it."""

    def free(self, region: Region) -> None:
        """Give a live region back."""

    def holes(self) -> list[Region]:
        """Free rows in address order; with deferred merging two of them may touch."""

    def hole_columns(self) -> np.ndarray:
        """The same rows as int64 [2, holes], (starts, sizes), in any order."""

    def live(self) -> list[Region]:
        """Live regions in address order."""

    def relocate(self, targets: Mapping[int, int]) -> None:
        """Live regions now start elsewhere (compaction): {old start: new start}."""

    def repack(self) -> Plan:
        """The moves after which the largest hole is as large as this allocator can make it."""

    def opening(self, need: int, cost: Mapping[int, int] | None = None) -> Plan | None:
        """The cheapest moves found after which a request of `need` is granted, or None when no
        moves do that. cost: {start: slots copied when that region moves}; else its size."""

    def reconfigure(self, *, coalesce: str | None = None, order: str | None = None) -> None:
        """Change how holes are merged and searched while regions are live."""

    def check(self) -> None:
        """Assert that rows tile the pool and that every index agrees with them."""


def check_policy(coalesce: str, order: str) -> None:
    """Raises ConfigError for a name that is not there."""
    for name, value, known in (("coalesce", coalesce, COALESCE), ("order", order, ORDERS)):
        if value not in known:
            raise ConfigError(f"{name}={value}: one of {', '.join(known)} was expected.")


def check_tiles(rows: list[Region], capacity: int) -> None:
    """Assert that these rows, in address order, cover the pool without a gap or an overlap."""
    at = 0
    for start, size in rows:
        assert start == at and size > 0, f"expected a row at {at}, found {start}+{size}"
        at += size
    assert at == capacity, f"rows end at {at} of {capacity}"
