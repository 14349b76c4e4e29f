"""Lists of free places that are as good as each other, and which of them goes first."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Protocol


class FreeList(Protocol):
    def add(self, start: int) -> None: ...

    def remove(self, start: int) -> None: ...

    def top(self) -> int:
        """The place that goes first; the list must not be empty."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[int]: ...

    def __contains__(self, start: int) -> bool: ...


class Ascending:
    """The lowest address goes first. Adding and removing move 8 bytes for each place behind."""

    def __init__(self) -> None:
        self._starts: list[int] = []

    def add(self, start: int) -> None:
        insort(self._starts, start)

    def remove(self, start: int) -> None:
        del self._starts[self._find(start)]

    def top(self) -> int:
        return self._starts[0]

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[int]:
        return iter(self._starts)

    def __contains__(self, start: int) -> bool:
        at = self._find(start)
        return at < len(self._starts) and self._starts[at] == start

    def _find(self, start: int) -> int:
        return bisect_left(self._starts, start)


class Recent:
    """The place added last goes first; a doubly linked list, so every step is O(1)."""

    def __init__(self) -> None:
        self._top = -1
        self._older: dict[int, int] = {}  # -1 behind the oldest
        self._newer: dict[int, int] = {}  # -1 before the newest

    def add(self, start: int) -> None:
        self._older[start] = self._top
        self._newer[start] = -1
        if self._top >= 0:
            self._newer[self._top] = start
        self._top = start

    def remove(self, start: int) -> None:
        older, newer = self._older.pop(start), self._newer.pop(start)
        if newer >= 0:
            self._older[newer] = older
        else:
            self._top = older
        if older >= 0:
            self._newer[older] = newer

    def top(self) -> int:
        return self._top

    def __len__(self) -> int:
        return len(self._older)

    def __iter__(self) -> Iterator[int]:
        return iter(self._older)

    def __contains__(self, start: int) -> bool:
        return start in self._older


FREE_LISTS: dict[str, Callable[[], FreeList]] = {"address": Ascending, "lifo": Recent}
