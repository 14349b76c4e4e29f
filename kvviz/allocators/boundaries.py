"""Holes by where they start and where they end, so that neighbours are found at once."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort


class Boundaries:
    """Disjoint holes; `sizes` is {start: size}. Two of them may touch."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    def add(self, start: int, size: int) -> None:
        self.sizes[start] = size
        self._ends[start + size] = start

    def pop(self, start: int) -> int:
        """Forget the hole that starts there; returns its size."""
        size = self.sizes.pop(start)
        del self._ends[start + size]
        return size

    def cut(self, start: int, taken: int) -> int:
        """The low `taken` slots are used now; returns the size before."""
        size = self.sizes.pop(start)
        if size > taken:
            self.sizes[start + taken] = size - taken
            self._ends[start + size] = start + taken
        else:
            del self._ends[start + size]
        return size

    def touching(self, start: int, end: int) -> list[tuple[int, int]]:
        """The holes (start, size) that end at `start` and begin at `end`, as far as there are."""
        found = []
        below = self._ends.get(start)
        if below is not None:
            found.append((below, start - below))
        above = self.sizes.get(end)
        if above is not None:
            found.append((end, above))
        return found

    def behind(self, at: int, wanted: int) -> list[tuple[int, int]]:
        """Holes from `at` on that touch one another, until they hold `wanted` slots together;
        empty when they don't."""
        found = []
        while wanted > 0:
            size = self.sizes.get(at)
            if size is None:
                return []
            found.append((at, size))
            at += size
            wanted -= size
        return found


class Runs(Boundaries):
    """Holes merged at once, and the largest of them: what deferred merging would come to."""

    def __init__(self) -> None:
        super().__init__()
        self._starts: list[int] = []
        self._sorted: list[int] = []

    @property
    def largest(self) -> int:
        return self._sorted[-1] if self._sorted else 0

    def give(self, start: int, size: int) -> None:
        """These slots are free now."""
        end = start + size
        for low, taken in self.touching(start, end):
            self._forget(low)
            start, end = min(start, low), max(end, low + taken)
        self._remember(start, end - start)

    def take(self, start: int, size: int) -> None:
        """These slots are used now; they may lie in the middle of a run."""
        low = self._starts[bisect_right(self._starts, start) - 1]
        high = low + self._forget(low)
        assert low <= start and start + size <= high, f"{start}+{size} is not all free"
        self._remember(low, start - low)
        self._remember(start + size, high - start - size)

    def _remember(self, start: int, size: int) -> None:
        if size:
            self.add(start, size)
            insort(self._starts, start)
            insort(self._sorted, size)

    def _forget(self, start: int) -> int:
        size = self.pop(start)
        del self._starts[bisect_left(self._starts, start)]
        del self._sorted[bisect_left(self._sorted, size)]
        return size
