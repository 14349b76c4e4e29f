"""First, best, worst and next fit: one allocator, four rules for which hole is taken.

Ties go to the lowest address. In the order of freeing (`lifo`) first and next fit search the
hole that was freed last first; best and worst fit go by size and know no such order.
"""

from __future__ import annotations

from kvviz.allocators.holes import HoleAllocator, IndexMaker
from kvviz.allocators.indices import AddressIndex, Index, RecentIndex, SizeIndex


def first_fit(capacity: int, order: str) -> Index:
    """The lowest hole that is large enough."""
    return AddressIndex(capacity, rove=False) if order == "address" else RecentIndex(rove=False)


def best_fit(_capacity: int, _order: str) -> Index:
    """The smallest hole that is large enough."""
    return SizeIndex(worst=False)


def worst_fit(_capacity: int, _order: str) -> Index:
    """The largest hole."""
    return SizeIndex(worst=True)


def next_fit(capacity: int, order: str) -> Index:
    """The first hole that is large enough, searching on from the last allocation."""
    return AddressIndex(capacity, rove=True) if order == "address" else RecentIndex(rove=True)


CHOICES: dict[str, IndexMaker] = {
    "first": first_fit,
    "best": best_fit,
    "worst": worst_fit,
    "next": next_fit,
}


class FitAllocator(HoleAllocator):
    """Regions from `capacity` slots. `choice` may be swapped while regions are live."""

    def __init__(
        self,
        capacity: int,
        fit: str = "first",
        *,
        coalesce: str = "immediate",
        order: str = "address",
    ) -> None:
        super().__init__(capacity, CHOICES[fit], coalesce=coalesce, order=order)

    @property
    def choice(self) -> IndexMaker:
        """One of CHOICES."""
        return self._make_index

    @choice.setter
    def choice(self, choice: IndexMaker) -> None:
        if choice is not self._make_index:
            self._make_index = choice
            self._rebuild_index()
