"""What every layout can do, and the address table that the model reads.

A layout decides which slots belong to which request, in order. It knows neither tensors nor
time. Whatever must happen to the tensors it writes into a journal of Moves, Freed regions, and
pages Mapped and Unmapped, in the order in which they must be carried out, before any write of the
same step: the region that a sequence moved out of may be handed out again in that step.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import numpy as np

from kvviz.config import RunConfig
from kvviz.records import (
    ADMITTED,
    CAPACITY,
    FRAGMENTED,
    NEVER,
    Columns,
    Freed,
    FreedBlocks,
    Mapped,
    Move,
    Request,
    SwappedIn,
    SwappedOut,
    Unmapped,
    Verdict,
)

Entry = Move | Freed | FreedBlocks | SwappedOut | SwappedIn | Mapped | Unmapped
Journal = list[Entry]


class Layout(Protocol):
    """Questions change nothing; a refused call leaves everything as it was.

    Some layouts offer more, and callers ask for it by name: `append_each(lines)` (one token for
    many sequences in one call), `sizes_each(lines)` (slots written and slots held of many),
    `fork(parent, child)` (a sample that starts from the parent's slots), `question_return(request,
    tokens, back)` (of a request that comes back from host memory, where admission may ask for less
    than all its tokens), `maintain()` (compaction once a step), `compact()` (close the holes now),
    `extras()` (see `extras_of`), `owners()` (whose the regions are, by address). One that says
    `swaps = False` has its victims computed anew; where `single` is True a request gets one unit of
    `grain` slots and no more; one that is `steadfast` admits nobody whom it refused before
    something was released or moved.
    """

    capacity: int
    grain: int
    paged: bool
    copies_on_write: bool
    table: AddressTable

    @property
    def free(self) -> int:
        """Free slots."""

    @property
    def admissible(self) -> int:
        """The largest request that finds a place now, without any move."""

    def need(self, request: Request, tokens: int) -> int:
        """Slots asked for at admission when `tokens` are known."""

    def question(self, request: Request, tokens: int) -> Verdict:
        """What `admit` would say."""

    def admit(self, request: Request, tokens: int) -> Verdict:
        """Give the request its slots, or say why not."""

    def append(self, request_id: int, count: int) -> Verdict:
        """`count` more tokens will be written; grows the request's slots if it must. With a count
        of 0 nothing is changed."""

    def release(self, request_id: int) -> None:
        """Give back everything the request holds."""

    def slots(self, request_id: int) -> slice | np.ndarray:
        """The written slots in the order of the tokens: a slice, or an array of indices."""

    def written(self, request_id: int) -> int:
        """Slots written so far."""

    def holds(self, request_id: int) -> bool:
        """Does the request have slots here?"""

    def held(self, request_id: int) -> int:
        """Slots held: written, and reserved for later."""

    def fits(self, count: int) -> bool:
        """Would a request of `count` slots find a place now?"""

    def reconfigure(self, config: RunConfig) -> None:
        """Take new settings that need no restart."""

    def note(self, entry: Entry) -> None:
        """Add to the journal what the scheduler decided (a swap)."""

    def take_journal(self) -> Journal:
        """What must happen to the tensors, in order, since the last call; empties it."""

    def columns(self) -> Columns:
        """Rows that tile the pool."""

    def check(self) -> None:
        """Assert the invariants of the bookkeeping."""


@runtime_checkable
class Places(Protocol):
    """A layout whose appends only claim slots, until all tokens of the step are known."""

    def place(self) -> list[int]:
        """Give the claimed tokens their slots, in the order in which they were claimed.

        Called once a step, before the journal is taken. The sizes of the parts that they were
        placed in; each part is a forward pass of its own.
        """


@runtime_checkable
class KeepsContent(Protocol):
    """A layout with free slots that still hold what a request may use again."""

    def cached_slots(self) -> np.ndarray:
        """Those slots, int64 [slots]."""


def extras_of(layout: Layout) -> dict[str, float]:
    """What only this layout counts, by name."""
    return getattr(layout, "extras", dict)()


def classify(need: int, free: int, largest: int, capacity: int) -> Verdict:
    """The verdict for a need. Lack of memory is told first: a high fragmentation index
    means nothing when free < need."""
    if need > capacity:
        kind = NEVER
    elif need > free:
        kind = CAPACITY
    elif need > largest:
        kind = FRAGMENTED
    else:
        kind = ADMITTED
    return Verdict(kind, need, free, largest)


class AddressTable:
    """First slots of the pieces of each request, one row a request: int32 [rows, pieces].

    A contiguous request has one piece. A paged one has a piece for each block: this is its
    block table, with each block id multiplied by the block size. `piece` is the slots in one
    piece: token i of a request lies in slot `array[row, i // piece] + i % piece`.
    """

    def __init__(self, piece: int, width: int = 1) -> None:
        self.piece = piece
        self.array = np.zeros((16, width), np.int32)
        self._row: dict[int, int] = {}
        self._unused = list(range(15, -1, -1))

    def open(self, request_id: int) -> int:
        """Assign a row, and say which."""
        if not self._unused:
            rows = len(self.array)
            self.array = np.concatenate([self.array, np.zeros_like(self.array)])
            self._unused = list(range(2 * rows - 1, rows - 1, -1))
        row = self._row[request_id] = self._unused.pop()
        return row

    def close(self, request_id: int) -> None:
        self._unused.append(self._row.pop(request_id))

    def row(self, request_id: int) -> int:
        return self._row[request_id]

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._row

    def rows(self, request_ids: Iterable[int]) -> np.ndarray:
        """The rows of these requests, int64 [n]."""
        return np.fromiter(map(self._row.__getitem__, request_ids), np.int64)

    def put(self, request_id: int, at: int, starts: np.ndarray | int, count: int = 1) -> None:
        """Write `count` pieces from index `at` on."""
        self.widen(at + count)
        self.array[self._row[request_id], at : at + count] = starts

    def widen(self, pieces: int) -> None:
        """Make room for this many pieces in each row."""
        if pieces > self.array.shape[1]:
            wider = max(pieces, 2 * self.array.shape[1])
            grown = np.zeros((len(self.array), wider), np.int32)
            grown[:, : self.array.shape[1]] = self.array
            self.array = grown
