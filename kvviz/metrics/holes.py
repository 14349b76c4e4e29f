"""Holes of a Snapshot: their sizes, how many requests they hold, and two tables of them.

F free slots, h_i hole sizes, r the size asked for, B slots in a block.
"""

from __future__ import annotations

import numpy as np

from kvviz.records import HOLE, Snapshot

_AT_ONCE = 4096  # distances of which all bits are looked at together


def hole_runs(snapshot: Snapshot) -> tuple[np.ndarray, np.ndarray]:
    """(starts, sizes) of the holes in address order, in slots.

    Free rows that touch are one hole, but free buffers that touch are two: nobody gets both.
    """
    c = snapshot.columns
    if not snapshot.single:
        return c.holes
    free = c.owner == HOLE
    return c.start[free].astype(np.int64), c.size[free].astype(np.int64)


def holes(snapshot: Snapshot) -> np.ndarray:
    """Sizes of the holes in address order, in slots; free blocks that touch are one hole."""
    return hole_runs(snapshot)[1]


def how_many_fit(
    hole_sizes: np.ndarray,
    block: int | None,
    free: int,
    sizes: np.ndarray,
    *,
    single: bool = False,
) -> np.ndarray:
    """How many requests of each size in `sizes` [n] fit now.

    Contiguous (block None): sum floor(h_i / r). Paged: floor(free blocks / ceil(r / B)).
    Single, a buffer for each request: the free buffers where r <= B, else none.
    """
    sizes = np.asarray(sizes, np.int64)
    if single and block is not None:
        return np.where(sizes <= block, free // block, 0)
    if block is not None:
        return (free // block) // -(-sizes // block)
    if not len(hole_sizes):
        return np.zeros(len(sizes), np.int64)
    # In floats, several times as fast: below 2^53 the floor of the rounded quotient is exact
    each = hole_sizes.astype(float) / sizes[:, None].astype(float)
    return np.add.reduce(np.floor(each, out=each), axis=1).astype(np.int64)


def bound_fit(free: int, sizes: np.ndarray) -> np.ndarray:
    """floor(F / r): how many would fit if all free slots were one hole."""
    return free // np.asarray(sizes, np.int64)


def hole_histogram(hole_sizes: np.ndarray, top: int) -> tuple[np.ndarray, np.ndarray]:
    """Holes counted in log2 bins: (lower edges 1, 2, 4 .. [n], counts [n]), n covers `top`."""
    bins = max(1, int(top).bit_length())
    index = np.floor(np.log2(np.maximum(hole_sizes, 1))).astype(np.int64)
    counts = np.bincount(index, minlength=bins)[:bins] if len(hole_sizes) else np.zeros(bins)
    return 1 << np.arange(bins), counts.astype(np.int64)


def buddyinfo(snapshot: Snapshot) -> np.ndarray:
    """Free pieces by order, int64 [orders]: entry k counts pieces of 2^k grains, as a line of
    Linux's /proc/buddyinfo counts pages.

    Each hole is cut into the largest pieces that start at a multiple of their own size, which
    is how a buddy allocator would keep it. So sum n_k * 2^k is the number of free grains; the
    slots behind the last whole block are left out.
    """
    starts, sizes = hole_runs(snapshot)
    end = (starts + sizes) // snapshot.grain
    at = np.minimum(-(-starts // snapshot.grain), end)
    orders = max(1, (snapshot.capacity // snapshot.grain).bit_length())
    # The roundest number in [at, end] is where end and at - 1 first differ: pieces grow up to it
    # and shrink behind it, and the set bits of the two distances are their sizes.
    order = np.frexp(((at - 1) ^ end).astype(float))[1] - 1
    middle = end >> order << order
    middle[at == 0] = 0
    distances = np.concatenate([middle - at, end - middle])
    counts = np.zeros(orders, np.int64)
    top = int(distances.max(initial=0)).bit_length()
    bit = np.arange(top)[:, None]
    for first in range(0, len(distances), _AT_ONCE):
        counts[:top] += np.add.reduce(distances[first : first + _AT_ONCE] >> bit & 1, axis=1)
    return counts
