"""Numbers that follow from a Snapshot or from two integers. Pure; formulas with their source.

F free slots, h_i hole sizes, r the size asked for. `None` is "not applicable", never 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz.records import HOLE, Snapshot


def external_fragmentation(free: int, largest: int) -> float | None:
    """1 - max h / F: the share of free memory that the largest request can't reach.

    0 when there is one hole; None when nothing is free.
    """
    return None if free == 0 else 1 - largest / free


def holes(snapshot: Snapshot) -> np.ndarray:
    """Sizes of the holes in address order, in slots; free blocks that touch are one hole."""
    c = snapshot.columns
    free = c.owner == HOLE
    first = free & ~np.concatenate([[False], free[:-1]])
    return np.bincount(
        np.cumsum(first)[free] - 1, weights=c.size[free], minlength=int(first.sum())
    ).astype(np.int64)


def how_many_fit(
    hole_sizes: np.ndarray, block: int | None, free: int, sizes: np.ndarray
) -> np.ndarray:
    """How many requests of each size in `sizes` [n] fit now.

    Contiguous (block None): sum floor(h_i / r). Paged: floor(free blocks / ceil(r / B)).
    """
    sizes = np.asarray(sizes, np.int64)
    if block is not None:
        return (free // block) // -(-sizes // block)
    if not len(hole_sizes):
        return np.zeros(len(sizes), np.int64)
    return (hole_sizes[None, :] // sizes[:, None]).sum(axis=1)


def bound_fit(free: int, sizes: np.ndarray) -> np.ndarray:
    """floor(F / r): how many would fit if all free slots were one hole."""
    return free // np.asarray(sizes, np.int64)


def unusable_index(hole_sizes: np.ndarray, request: int) -> float:
    """Unusable free space index (Gorman; Linux mm/vmstat.c), for any hole sizes.

    (F - r * sum floor(h_i / r)) / F; 1 when nothing is free. 0: all free memory serves
    requests of r.
    """
    free = int(hole_sizes.sum())
    if free == 0:
        return 1.0
    return (free - request * int((hole_sizes // request).sum())) / free


def fragmentation_index(hole_sizes: np.ndarray, request: int) -> float | None:
    """Linux's extfrag_index: toward 0 lack of memory, toward 1 fragmentation.

    1 - (1 + F / r) / H; 0 without holes; None when some hole holds r. Classify first: it
    misleads when F < r, and goes below 0 with few large holes (show it clipped to [0, 1]).
    """
    if not len(hole_sizes):
        return 0.0
    if int(hole_sizes.max()) >= request:
        return None
    return 1 - (1 + int(hole_sizes.sum()) / request) / len(hole_sizes)


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
    what no whole block covers). Free memory that would serve such requests is none of these;
    it is total minus the four.
    """
    life, used, held = snapshot.seq_life, snapshot.seq_used, snapshot.seq_held
    written = int(used.sum())
    reserved = int((np.minimum(life, held) - used).sum())
    internal = int((held - np.minimum(life, held)).sum())
    hole_sizes = holes(snapshot)
    free = int(hole_sizes.sum())
    if snapshot.block is not None:
        external = free % snapshot.block
    else:
        external = free - int(hole_sizes[hole_sizes >= max(ask, 1)].sum())
    return Breakdown(written, reserved, internal, external, snapshot.capacity)


def textbook_breakdown(snapshot: Snapshot) -> Breakdown:
    """Textbook: internal is everything held and not written now; external is every free slot
    outside the largest hole (paged: none, for any free block will do)."""
    written = int(snapshot.seq_used.sum())
    internal = int(snapshot.seq_held.sum()) - written
    external = snapshot.free - snapshot.admissible if not snapshot.paged else 0
    return Breakdown(written, 0, internal, external, snapshot.capacity)


def hole_histogram(hole_sizes: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Holes counted in log2 bins: (lower edges 1, 2, 4 .. [n], counts [n]), n covers `top`."""
    bins = max(1, int(top).bit_length())
    index = np.floor(np.log2(np.maximum(hole_sizes, 1))).astype(np.int64)
    counts = np.bincount(index, minlength=bins)[:bins] if len(hole_sizes) else np.zeros(bins)
    return 1 << np.arange(bins), counts.astype(np.int64)


def summary(values: np.ndarray) -> dict[str, float | None]:
    """Mean and 95th percentile over steps; None when there was no step."""
    if not len(values):
        return {"mean": None, "p95": None}
    return {
        "mean": round(float(values.mean()), 4),
        "p95": round(float(np.percentile(values, 95)), 4),
    }
