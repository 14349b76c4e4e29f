"""Free blocks of a forest of binary buddies, in units, and how to make large ones of small ones.

A pool that is no power of two is cut into the powers of two of its size, largest first
(24 = 16 + 8). So each tree starts at a multiple of twice its size, and the buddy of the block at
`start` of order k is at `start ^ 2**k` in every tree; a tree's root finds none there.

    order 2    |       0       |       4       |
    order 1    |   0   |   2   |   4   |   6   |      blocks 2 and 4 of order 1 touch, but they
    order 0    | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |      are no buddies: they never merge
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from kvviz.allocators.freelists import FREE_LISTS

Block = tuple[int, int]  # (start, order), in units


def trees(units: int) -> list[Block]:
    """The roots, largest first."""
    found, start = [], 0
    for order in reversed(range(units.bit_length())):
        if units >> order & 1:
            found.append((start, order))
            start += 1 << order
    return found


class FreeBlocks:
    """Free lists by order, `order` (`address` or `lifo`) within each."""

    def __init__(self, units: int, order: str = "address") -> None:
        self._lists = [FREE_LISTS[order]() for _ in range(max(units.bit_length(), 1))]
        self._used = 0  # bit k: some block of order k is free

    @property
    def top(self) -> int:
        """Order of the largest free block, -1 when there is none."""
        return self._used.bit_length() - 1

    def blocks(self) -> set[Block]:
        return {(start, order) for order, starts in enumerate(self._lists) for start in starts}

    def of(self, order: int) -> list[int]:
        """Starts of the free blocks of this order, ascending."""
        return sorted(self._lists[order])

    def has(self, start: int, order: int) -> bool:
        return order < len(self._lists) and start in self._lists[order]

    def find(self, order: int) -> Block | None:
        """The block to take for a request of this order: of the smallest that will do, the one
        whose turn it is."""
        able = self._used >> order << order
        if not able:
            return None
        found = (able & -able).bit_length() - 1
        return self._lists[found].top(), found

    def add(self, start: int, order: int) -> None:
        self._lists[order].add(start)
        self._used |= 1 << order

    def remove(self, start: int, order: int) -> None:
        self._lists[order].remove(start)
        if not self._lists[order]:
            self._used &= ~(1 << order)

    def merge(self, start: int, order: int) -> None:
        """Add a block, and merge it with its buddy as long as that is free."""
        while start ^ (1 << order) in self._lists[order]:
            self.remove(start ^ (1 << order), order)
            start &= ~(1 << order)
            order += 1
        self.add(start, order)

    def carve(self, start: int, order: int) -> int:
        """Take this block out of the free one it lies in, whose halves go back; returns the order
        of that one."""
        whole = order
        while start >> whole << whole not in self._lists[whole]:
            whole += 1
            assert whole < len(self._lists), f"block {start} of order {order} is not free"
        self.remove(start >> whole << whole, whole)
        for half in reversed(range(order, whole)):
            self.add(start >> half << half ^ (1 << half), half)
        return whole

    def clear(self, start: int, order: int) -> None:
        """Remove all free blocks within this one; together they must fill it."""
        at, end = start, start + (1 << order)
        while at < end:
            inner = next(k for k in range(order + 1) if self.has(at, k))
            self.remove(at, inner)
            at += 1 << inner

    def take_over(self, blocks: set[Block]) -> None:
        """Hold exactly these. One that stood alone keeps its turn, the lowest of the others is
        the one added last."""
        now = self.blocks()
        for block in now - blocks:
            self.remove(*block)
        for block in sorted(blocks - now, reverse=True):
            self.add(*block)


def free_around(units: int, live: Iterable[Block]) -> FreeBlocks:
    """The merged free blocks that these live ones leave."""
    free = FreeBlocks(units)
    for root in trees(units):
        free.add(*root)
    for block in live:
        free.carve(*block)
    return free


def pair_up(units: int, live: Mapping[int, int], target: int) -> list[tuple[int, int]]:
    """Moves (start, new start) after which a block of order `target` is free, if so much is.

    live: {start: order}. From the smallest order up: of two free blocks a and b of an order, all
    that lives in a's buddy moves into b, in the same arrangement, and a merges with its buddy.

        |a...|xx.y|....b...|zzzz|    ->    |........|....xx.y|zzzz|

    So at most one block of each order below stays free, which together are less than one of
    `target`; and every move goes to slots that are free at that time. A region may move again at
    a higher order.
    """
    free, live = free_around(units, live.items()), dict(live)
    roots = set(trees(units))
    moves = []
    order = 0
    while order < target and free.top < target:
        starts = free.of(order)
        if len(starts) < 2:
            order += 1
            continue
        mass = {start: _mass(live, start ^ (1 << order), order) for start in starts}
        a = min((s for s in starts if (s, order) not in roots), key=lambda s: (mass[s], -s))
        b = max((s for s in starts if s != a), key=lambda s: (mass[s], -s))
        moves += _transfer(free, live, a ^ (1 << order), b, order)
        free.remove(a, order)
        free.remove(b, order)
        free.merge(a & ~(1 << order), order + 1)
    return moves


def _mass(live: Mapping[int, int], start: int, order: int) -> int:
    """Live units within a block."""
    return sum(1 << k for s, k in live.items() if start <= s < start + (1 << order))


def _transfer(
    free: FreeBlocks, live: dict[int, int], source: int, target: int, order: int
) -> list[tuple[int, int]]:
    """Everything in the block at `source`, live or free, lies in the one at `target` now."""
    end, shift = source + (1 << order), target - source
    moves = []
    for start in sorted(s for s in live if source <= s < end):
        live[start + shift] = live.pop(start)
        moves.append((start, start + shift))
    for inner in range(order):
        for start in free.of(inner):
            if source <= start < end:
                free.remove(start, inner)
                free.add(start + shift, inner)
    return moves


def cheapest_window(
    units: int, live: Mapping[int, int], order: int, price: Mapping[int, int]
) -> list[tuple[int, int]] | None:
    """Moves (start, new start), one for each region, that clear the block of this order whose
    regions are cheapest to move and find room outside; None when there is no such block.

    Room is found exactly: powers of two, largest first, fill free powers of two without loss.
    """
    starts = sorted(live)
    before = [0]
    for start in starts:
        before.append(before[-1] + price[start])
    windows = []
    for root, height in trees(units):
        for window in range(root, root + (1 << height), 1 << order) if height >= order else ():
            low, high = bisect_left(starts, window), bisect_left(starts, window + (1 << order))
            windows.append((before[high] - before[low], window, starts[low:high]))
    # Windows that a larger region covers have an overlap that none of their own regions shows.
    covered = {
        window
        for start, height in live.items()
        if height >= order
        for window in range(start, start + (1 << height), 1 << order)
    }
    for _, window, leaving in sorted(windows):
        if window not in covered:
            moves = _evacuated(units, live, order, window, leaving)
            if moves is not None:
                return moves
    return None


def _evacuated(
    units: int, live: Mapping[int, int], order: int, window: int, leaving: list[int]
) -> list[tuple[int, int]] | None:
    kept = {s: k for s, k in live.items() if not window <= s < window + (1 << order)}
    free = free_around(units, [*kept.items(), (window, order)])
    moves = []
    for start in sorted(leaving, key=lambda s: (-live[s], s)):
        found = free.find(live[start])
        if found is None:
            return None
        moves.append((start, found[0]))
        free.carve(found[0], live[start])
    return moves
