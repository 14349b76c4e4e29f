"""Where the pool's slots are: two breakdowns, usage by slot and by block, block tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz.metrics.holes import holes
from kvviz.records import Snapshot

TABLE_ENTRY_BYTES = 4  # an int32 a block


@dataclass(frozen=True)
class Breakdown:
    """Where the pool's slots are; the four parts and the total sum up."""

    written: int
    reserved: int
    internal: int
    external: int
    total: int


def paper_breakdown(snapshot: Snapshot, ask: int) -> Breakdown:
    """In the sense of the PagedAttention paper (SOSP '23, figure 2).

    written: token states. reserved: held now and used later by this request. internal: held
    and never used by it. external: free, and of no use to a request of `ask` slots (paged:
    what no whole block covers; buffers: all of them when `ask` outgrows one). Free memory that
    would serve such requests is none of these; it is total minus the four. A slot that several
    requests share counts once.
    """
    life, held = snapshot.seq_life, snapshot.seq_held
    written = snapshot.columns.written
    internal = never_used(life, held)
    reserved = max(0, snapshot.columns.taken - written - internal)
    hole_sizes = holes(snapshot)
    free = snapshot.free
    if snapshot.single and ask > snapshot.grain:
        external = free
    elif snapshot.block is not None:
        external = free % snapshot.block
    else:
        external = free - int(hole_sizes[hole_sizes >= max(ask, 1)].sum())
    return Breakdown(written, reserved, internal, external, snapshot.capacity)


def never_used(life: np.ndarray, held: np.ndarray) -> int:
    """Slots that requests [n] hold beyond what they hold at the end of their lives."""
    return int((held - np.minimum(life, held)).sum())


def textbook_breakdown(snapshot: Snapshot) -> Breakdown:
    """Textbook: internal is everything held and not written now; external is every free slot
    outside the largest hole (paged: none, for any free block will do)."""
    written = snapshot.columns.written
    internal = snapshot.columns.taken - written
    external = snapshot.free - snapshot.admissible if not snapshot.paged else 0
    return Breakdown(written, 0, internal, external, snapshot.capacity)


@dataclass(frozen=True)
class Usage:
    """Slots written, and blocks taken; the gap between the two shares is tails and reservation.

    `used_blocks` and `blocks` are None where memory isn't handed out in blocks.
    """

    used_slots: int
    slots: int
    used_blocks: int | None
    blocks: int | None

    @property
    def slot_share(self) -> float:
        return self.used_slots / self.slots

    @property
    def block_share(self) -> float | None:
        if not self.blocks or self.used_blocks is None:
            return None
        return self.used_blocks / self.blocks


def usage(snapshot: Snapshot) -> Usage:
    """Each slot counts once, however many requests share it."""
    block = snapshot.block
    written = snapshot.columns.written
    if block is None:
        return Usage(written, snapshot.capacity, None, None)
    taken = snapshot.columns.taken // block
    return Usage(written, snapshot.capacity, taken, snapshot.capacity // block)


def block_table_bytes(snapshot: Snapshot) -> int | None:
    """Bytes of the entries in use, `TABLE_ENTRY_BYTES` a block of each running request; None
    without blocks."""
    if snapshot.block is None:
        return None
    return int((-(-snapshot.seq_held // snapshot.block)).sum()) * TABLE_ENTRY_BYTES
