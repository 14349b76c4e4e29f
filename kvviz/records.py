"""The nouns: Request, Region, Move, Freed, Mapped, Unmapped, Verdict, Event, Snapshot. Frozen; no
behaviour of their own beyond derived numbers.

Every size is in **slots** (room for one token's K and V in all layers) unless its name ends in
`_bytes`. A finished request holds prompt + output - 1 slots: the last sampled token is never
written to the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

ADMITTED = "admitted"
NEVER = "never"
CAPACITY = "capacity"
FRAGMENTED = "fragmented"
QUEUED = "queued"
REFUSALS = (NEVER, CAPACITY, FRAGMENTED, QUEUED)

HOLE = -1  # the owner of a free row
RESERVED = -2  # the owner of what no request can get: a null block, a rest behind the last block


class Region(NamedTuple):
    """A run of slots."""

    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


class Move(NamedTuple):
    """Copy `size` slots from `source` to `target`. What becomes of the source is another entry."""

    source: int
    target: int
    size: int
    request: int


class Freed(NamedTuple):
    """These slots belong to nobody now. Debug mode poisons them."""

    start: int
    size: int


class FreedBlocks(NamedTuple):
    """These blocks of `size` slots belong to nobody now: many `Freed` in one."""

    ids: np.ndarray
    size: int


class SwappedOut(NamedTuple):
    """Copy the K and V of these slots, in token order, to host memory under the request's id."""

    request: int
    slots: slice | np.ndarray


class SwappedIn(NamedTuple):
    """Copy tokens [start, stop) back from host memory, to the slots that the request has now."""

    request: int
    start: int
    stop: int


class Mapped(NamedTuple):
    """These virtual slots, whole pages, get physical memory. They hold nothing yet."""

    start: int
    size: int


class Unmapped(NamedTuple):
    """The physical memory of these virtual slots, whole pages, goes back, and what it held."""

    start: int
    size: int


class Verdict(NamedTuple):
    """What a request gets, with the numbers that decided it.

    moved: the price paid for it, slots copied by compaction, relocation or copy on write.
    cached: leading tokens whose K and V were found in memory and need not be computed.
    """

    kind: str
    need: int
    free: int
    largest: int
    moved: int = 0
    cached: int = 0

    @property
    def admitted(self) -> bool:
        return self.kind == ADMITTED


@dataclass(frozen=True, slots=True)
class Request:
    """What arrives. `limit` is the longest output it may ask for, `text` seeds its prompt.

    arrival: a step, or -1 when requests come on demand (fixed concurrency).
    shared: leading parts of the prompt that other requests may have too, as (key, tokens):
    equal keys mean equal tokens.
    samples: answers wanted for the one prompt; the others are served as siblings (`sibling`).
    priority: the higher, the later it is preempted under the priority policy.
    """

    id: int
    arrival: int
    prompt_len: int
    output_len: int
    limit: int
    text: int = 0
    shared: tuple[tuple[int, int], ...] = ()
    samples: int = 1
    priority: int = 0

    @property
    def life(self) -> int:
        """Slots held at the end: prompt + output - 1."""
        return self.prompt_len + self.output_len - 1

    def sibling(self, index: int) -> Request:
        """Sample `index` (1 ..) of this request: the same prompt, an id of its own."""
        return replace(self, id=self.id + index * SIBLINGS, samples=1)


SIBLINGS = 1 << 24  # ids of a request's samples lie this far apart


class Event(NamedTuple):
    """One fact. `kind`: arrive, admit, refuse, drop, share, fork, copy, move, preempt, swap_out,
    swap_in, finish, change.
    """

    step: int
    kind: str
    request: int = -1
    verdict: str = ""
    need: int = 0
    free: int = 0
    largest: int = 0
    slots: int = 0
    text: str = ""


@dataclass(frozen=True)
class Counters:
    """Totals since the start of the run. `refused` counts requests by their first refusal.

    recomputed: tokens of preempted requests to compute again, less those that memory still had when
    the request came back. cached: tokens found in memory; copied: slots copied on write; swapped:
    slots copied to host memory and back; bypassed: times a request was admitted past a head that
    waits; passes: times that the model ran, at least once in a step that writes tokens.
    """

    arrived: int = 0
    admitted: int = 0
    finished: int = 0
    preempted: int = 0
    dropped: int = 0
    recomputed: int = 0
    generated: int = 0
    slots_moved: int = 0
    move_seconds: float = 0.0
    running: int = 0
    waiting: int = 0
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REFUSALS, 0))
    cached: int = 0
    copied: int = 0
    swapped: int = 0
    bypassed: int = 0
    passes: int = 0

    @property
    def false_refusals(self) -> int:
        """Requests refused although free >= need."""
        return self.refused[FRAGMENTED]

    @property
    def refusals(self) -> int:
        return sum(self.refused.values())


@dataclass(frozen=True)
class Columns:
    """Rows that tile the pool in address order, integers [rows] each; owner -1 is a hole. (Ids of
    requests fit into int32.)

    refs: sequences that hold the row; a shared row names the oldest of them as its owner.
    cached: slots in a hole that still hold a prefix which a request may use again.
    Nothing is written to them any more: what follows from them is counted once and kept.
    """

    start: np.ndarray
    size: np.ndarray
    used: np.ndarray
    owner: np.ndarray
    refs: np.ndarray
    cached: np.ndarray | None = None

    @cached_property
    def holes(self) -> tuple[np.ndarray, np.ndarray]:
        """(starts, sizes) of the holes, int64 [holes] each; free rows that touch are one."""
        free = np.zeros(len(self.owner) + 2, bool)  # something is held before and behind
        np.equal(self.owner, HOLE, out=free[1:-1])
        edges = (free[1:] != free[:-1]).nonzero()[0]
        first, last = edges[::2], edges[1::2] - 1
        starts = self.start[first]
        return starts, self.start[last] + self.size[last] - starts

    @cached_property
    def free(self) -> int:
        """Slots in holes."""
        return int(self.holes[1].sum())

    @cached_property
    def live(self) -> int:
        """Rows that belong to somebody."""
        return int(np.count_nonzero(self.owner >= 0))

    @cached_property
    def reserved(self) -> int:
        """Slots that no request can get."""
        if self.owner.min(initial=HOLE) == HOLE:
            return 0
        return int(self.size[(self.owner == RESERVED).nonzero()[0]].sum())

    @cached_property
    def taken(self) -> int:
        """Slots that requests hold, each once."""
        whole = int(self.start[-1] + self.size[-1]) if len(self.start) else 0
        return whole - self.free - self.reserved

    @cached_property
    def written(self) -> int:
        """Slots that hold a token, each once."""
        # A sum of int32 in int64 is converted number by number, at several times the cost
        whole = int(self.start[-1] + self.size[-1]) if len(self.start) else 0
        narrow = self.used.dtype == np.int32 and whole < 1 << 31
        return int(self.used.sum(dtype=np.int32 if narrow else np.int64))

    @cached_property
    def again(self) -> int:
        """Slots counted once for each holder beyond a row's first."""
        if self.refs.max(initial=0) < 2:
            return 0
        more = (self.refs > 1).nonzero()[0]
        return int(((self.refs[more] - 1) * self.size[more]).sum())


@dataclass(frozen=True)
class Snapshot:
    """The memory of one lane at one step: the one type that goes from backend to view.

    grain: smallest unit a request can get (1, or the block size); paged: any free unit will do.
    single: a request gets one unit and no more, and has it alone (a buffer of its own).
    admissible: the largest request that would be admitted now, without any move.
    seq_*: a row for each running request, in the order of admission: id, slots written,
    slots at the end of its life, slots reserved now, prompt length, step of admission.
    waiting_*: the queue, head first (ids and the slots each needs), cut at `WAITING_SHOWN`.
    dropped_id: the last `WAITING_SHOWN` requests that were turned away for good.
    extras: what a layout counts itself, by name; a name that is missing was not counted.
    """

    step: int
    seconds: float
    capacity: int
    grain: int
    paged: bool
    slot_bytes: int
    admissible: int
    columns: Columns
    seq_id: np.ndarray
    seq_used: np.ndarray
    seq_life: np.ndarray
    seq_held: np.ndarray
    seq_prompt: np.ndarray
    seq_since: np.ndarray
    _: KW_ONLY
    waiting_id: np.ndarray
    waiting_need: np.ndarray
    head: Verdict | None
    counters: Counters
    dropped_id: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    extras: Mapping[str, float] = field(default_factory=dict)
    single: bool = False

    @cached_property
    def free(self) -> int:
        """Slots in holes."""
        return self.columns.free

    @property
    def block(self) -> int | None:
        """Slots in a block; None where a request needs one piece."""
        return self.grain if self.paged else None

    def check(self) -> None:
        """Assert that the rows tile the pool and that no row holds more than its size."""
        c = self.columns
        ends = c.start + c.size
        assert int(c.start[0]) == 0, f"first row starts at {c.start[0]}, not 0"
        assert (ends[:-1] == c.start[1:]).all(), "rows leave a gap or overlap"
        assert int(ends[-1]) == self.capacity, f"rows end at {ends[-1]} of {self.capacity}"
        assert (c.used <= c.size).all(), "a row uses more slots than it has"
        hole = c.owner == HOLE
        assert not c.used[hole].any() and not c.refs[hole].any(), "a hole is in use"


class DeviceMemory(NamedTuple):
    """What a GPU and torch's allocator on it say, in bytes: in tensors; taken from the device by
    torch; free on the device, for all processes; all of it."""

    allocated_bytes: int
    reserved_bytes: int
    free_bytes: int
    total_bytes: int


WAITING_SHOWN = 256
