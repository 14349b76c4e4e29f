"""Indices of fragmentation. `None` is "not applicable", never 0.

F free slots, h_i hole sizes, H number of holes, r the size asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz.metrics.holes import how_many_fit
from kvviz.records import CAPACITY, FRAGMENTED

FITS = "fits"


def external_fragmentation(free: int, largest: int) -> float | None:
    """1 - max h / F: the share of free memory that the largest request can't reach.

    0 when there is one hole; None when nothing is free.
    """
    return None if free == 0 else 1 - largest / free


def unusable_index(hole_sizes: np.ndarray, request: int) -> float:
    """Unusable free space index (Gorman; Linux mm/vmstat.c), for any hole sizes.

    (F - r * sum floor(h_i / r)) / F; 1 when nothing is free. 0: all free memory serves
    requests of r.
    """
    free = int(hole_sizes.sum())
    if free == 0:
        return 1.0
    return (free - request * int((hole_sizes // request).sum())) / free


def unusable_curve(
    hole_sizes: np.ndarray,
    block: int | None,
    free: int,
    sizes: np.ndarray,
    *,
    single: bool = False,
    fit: np.ndarray | None = None,
) -> np.ndarray:
    """The unusable index for each request size in `sizes` [n], float64 [n].

    fit [n]: what `how_many_fit` says of the same, where it is known.

    Paged: a request takes ceil(r / B) * B slots, for the tail of its last block is internal
    waste; so what is unusable are the blocks left over and the slots behind the last block.
    Single, a buffer for each request: a request larger than a buffer can use nothing.
    """
    sizes = np.asarray(sizes, np.int64)
    if free == 0:
        return np.ones(len(sizes))
    taken = sizes if block is None else -(-sizes // block) * block
    if fit is None:
        fit = how_many_fit(hole_sizes, block, free, sizes, single=single)
    return (free - taken * fit) / free


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
class Fragmentation:
    """What a request of one size would meet. `kind`: fits, capacity (F < r), fragmented.

    `value` is Linux's index as computed, None when it fits. Read the kind first: the index of
    plain lack of memory may be high, that of pure fragmentation low or negative.
    """

    kind: str
    value: float | None

    @property
    def shown(self) -> float | None:
        """Clipped to [0, 1]."""
        return None if self.value is None else min(max(self.value, 0.0), 1.0)


def fragmentation(hole_sizes: np.ndarray, request: int) -> Fragmentation:
    """Classified by F and max h, with the index beside it; for layouts that need one piece."""
    value = fragmentation_index(hole_sizes, request)
    if value is None:
        return Fragmentation(FITS, None)
    return Fragmentation(CAPACITY if int(hole_sizes.sum()) < request else FRAGMENTED, value)
