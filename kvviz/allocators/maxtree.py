"""Sizes at positions, and the first position that holds at least so much: a tree of maxima.

      7                 first(5): go left while the left half holds 5, else right,
  4       7             so the search looks at one node a level
4   1   0   7
"""

from __future__ import annotations

from array import array

import numpy as np


class MaxTree:
    """`width` positions, all 0 at first. Memory: 8 bytes a position, rounded up to a power of
    two. `put` and `first` cost O(log width), whatever the number of positions in use."""

    def __init__(self, width: int) -> None:
        self.leaves = 1 << max(width - 1, 0).bit_length()
        self._node = array("i", bytes(8 * self.leaves))  # node i has children 2i and 2i + 1

    @property
    def top(self) -> int:
        """The largest of all."""
        return self._node[1]

    def put(self, at: int, size: int) -> None:
        node = self._node
        at += self.leaves
        old = node[at]
        node[at] = size
        if size >= old:
            while at > 1 and node[at >> 1] < size:
                at >>= 1
                node[at] = size
            return
        # Only where the old size was the maximum does anything change further up.
        while at > 1:
            other = node[at ^ 1]
            if other > size:
                size = other
            at >>= 1
            if node[at] == size:
                return
            node[at] = size

    def first(self, need: int, start: int = 0) -> int:
        """The lowest position >= `start` that holds at least `need`, or -1."""
        node, leaves = self._node, self.leaves
        if start <= 0:
            if node[1] < need:
                return -1
            at = 1
        elif start >= leaves:
            return -1
        else:
            at = start + leaves
            while node[at] < need:
                while at & 1:  # a right child: what lies behind hangs higher up
                    if at == 1:
                        return -1
                    at >>= 1
                at += 1
        while at < leaves:
            at <<= 1
            if node[at] < need:
                at += 1
        return at - leaves

    def sizes(self) -> np.ndarray:
        """A copy of the leaves, int32 [width rounded up to a power of two]."""
        return np.frombuffer(self._node, np.int32)[self.leaves :].copy()

    def check(self) -> None:
        """Assert that each node is the maximum of its children."""
        node = np.frombuffer(self._node, np.int32)
        pairs = node[2:].reshape(-1, 2).max(axis=1)
        assert np.array_equal(node[1 : self.leaves], pairs), "a node is not its children's maximum"
