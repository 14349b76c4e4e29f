"""Placing a batch where its cells must be adjacent, by halving it until the parts fit.

    holes   |......|###|....|##|..|          # is taken
    batch   aaaaaaaaaa                       no hole holds ten
    halved  aaaaa  aaaa    a                 three parts: three forward passes

What llama.cpp's unified cache did before it placed cells anywhere (ggml-org/llama.cpp#3380): free
memory that lies in pieces refuses nobody, it is paid for in forward passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kvviz.records import Region


class Placement(NamedTuple):
    """`regions` [parts] are the cells of each part, in the order of the tokens; `attempts` counts
    the searches for a hole; `left` tokens found no cells: more than 0 only when the holes
    together are too small."""

    parts: list[int]
    attempts: int
    regions: list[Region]
    left: int


def place_batch(holes: Sequence[Region] | np.ndarray, count: int, batch: int) -> Placement:
    """`count` tokens into the holes (start, size) [holes, 2] in address order, first fit.

    At most `batch` tokens make a part. A part that finds no hole halves `batch`, which is never
    raised again; at 1 the search ends. Every part is placed before the next one is tried.
    """
    start, size = np.array(holes, np.int64).reshape(-1, 2).T
    regions: list[Region] = []
    attempts, left = 0, count
    while left and batch:
        part = min(batch, left)
        fitting = np.flatnonzero(size >= part)
        if not len(fitting):
            attempts += 1
            batch //= 2
            continue
        # First fit with one size of part empties the fitting holes one after the other
        parts = size[fitting] // part
        taken = np.clip(left // part - (np.cumsum(parts) - parts), 0, parts)
        many = int(taken.sum())
        at = np.arange(many) - np.repeat(np.cumsum(taken) - taken, taken)
        first = np.repeat(start[fitting], taken) + at * part
        regions += [Region(cell, part) for cell in first.tolist()]
        start[fitting] += taken * part
        size[fitting] -= taken * part
        attempts += many
        left -= many * part
    return Placement([region.size for region in regions], attempts, regions, left)
