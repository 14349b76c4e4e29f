"""A pool of fixed-size blocks with ref counts, and the blocks that may be found again by content.

The free list is a stack: the block that was freed last is handed out first, as serving engines
do for blocks without a cached prefix. So a sequence's blocks scatter over the pool, and that is
harmless: the block table puts them in order.

A block that was registered under a key keeps its content when its last holder leaves: it counts
as free, can be found by its key and shared again, and is evicted, least recently used first,
only when the stack is empty. (vLLM's prefix caching works so; its queue holds both kinds.)
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

_ONE = np.ones(1, np.int32).tobytes()


class BlockPool:
    """`count` blocks. `refs[i]` is how many sequences hold block i; 0 is free.

    `null`: block 0 is held by the pool itself and never handed out (vLLM's null block).
    `free_blocks`: those that nobody holds, cached ones included.
    `evicted`: cached blocks whose content the last `take` lost; `evictions`: those of all takes.
    `again`: holders beyond each block's first, of all blocks together.
    `cached`: bool [count], the free blocks that still hold a prefix.

    Ids are int64, for an array is indexed several times faster by these than by int32. With a
    dozen blocks a call it is the number of numpy calls that counts, and reductions cost most: so
    arrays are compared as bytes.
    """

    def __init__(self, count: int, *, null: bool = False) -> None:
        self.count = count
        self.null = null
        self.refs = np.zeros(count, np.int32)
        self.refs[:null] = 1
        self.evicted = self.evictions = self.again = 0
        self.cached = np.zeros(count, bool)
        self._marks = -1 - np.arange(count, dtype=np.int32)
        # The top of the stack is the end of its first `_bare` entries; the lowest block goes first.
        self._stack = np.arange(count - 1, -1, -1, dtype=np.int64)
        self._bare = self.free_blocks = count - null
        self._key: dict[int, int] = {}
        self._block: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()  # least recently used first

    @property
    def usable_blocks(self) -> int:
        """Blocks that can be handed out at all."""
        return self.count - self.null

    @property
    def cached_blocks(self) -> int:
        """Free blocks that still hold a prefix."""
        return len(self._idle)

    def idle(self) -> np.ndarray:
        """Ids of the free blocks that still hold a prefix, least recently used first."""
        return np.fromiter(self._idle, np.int64, len(self._idle))

    def take(self, count: int) -> np.ndarray | None:
        """Ids [count] of blocks that are now held once, or None when fewer are free.

        The last `evicted` of them were cached blocks, whose content is lost by this.
        """
        if count > self.free_blocks:
            return None
        top = self._bare
        bare = count if count < top else top
        ids = self._stack[top - bare : top][::-1].copy()
        self._bare = top - bare
        self.free_blocks -= count
        self.evicted = count - bare
        if self.evicted:
            ids = np.concatenate([ids, self._evict(self.evicted)])
        self.refs[ids] = 1
        return ids

    def share(self, ids: np.ndarray) -> None:
        """One more holder for each of these blocks, live or cached."""
        unheld = ids[self.refs[ids] == 0]
        cached = unheld.tolist()
        for block in cached:
            assert block in self._idle, f"share of the free block {block}"
        for block in cached:
            del self._idle[block]
        self.cached[unheld] = False
        self.free_blocks -= len(cached)
        self.again += len(ids) - len(cached)
        self.refs[ids] += 1

    def drop(self, ids: np.ndarray) -> np.ndarray:
        """One holder less for each; returns the ids whose content is of no more use.

        Blocks are pushed tail first, so that the head of a sequence is reused first; of the
        cached ones the tail is evicted first, for a prefix is of use to more requests.
        """
        refs, count = self.refs, len(ids)
        holders, marks = refs[ids], self._marks[:count]
        refs[ids] = marks  # two equal ids can't keep two marks
        once = refs[ids].tobytes() == marks.tobytes()
        if once and holders.tobytes() == _ONE * count:
            refs[ids] = 0
            freed = ids[::-1]
        else:
            freed = self._less(ids, holders, once)
        self.free_blocks += len(freed)
        return self._push(freed)

    def register(self, block: int, key: int) -> None:
        """A held block's content may be found under `key` from now on; the first one stays."""
        assert self.refs[block] > 0, f"register of the free block {block}"
        if key not in self._block and block not in self._key:
            self._block[key] = block
            self._key[block] = key

    def find(self, key: int) -> int | None:
        """The block, held or cached, with this content."""
        return self._block.get(key)

    def check(self) -> None:
        """Assert that free list and cache hold exactly the blocks without a holder, each once."""
        free = np.sort(np.concatenate([self._stack[: self._bare], self.idle()]))
        unheld = np.flatnonzero(self.refs == 0)
        assert np.array_equal(free, unheld), (
            f"{len(free)} blocks on the free list, {len(unheld)} without a holder"
        )
        assert self.free_blocks == len(free), f"{self.free_blocks} blocks count as free"
        assert (self.refs >= 0).all(), "a block has a negative ref count"
        assert {b: k for k, b in self._block.items()} == self._key, "keys and blocks disagree"
        assert all(block in self._key for block in self._idle), "a cached block has no key"
        assert np.array_equal(np.flatnonzero(self.cached), np.sort(self.idle())), (
            "the marks of cached blocks are stale"
        )
        again = int(np.maximum(self.refs - 1, 0).sum())
        assert self.again == again, f"{self.again} further holders counted, {again} there"

    def _less(self, ids: np.ndarray, holders: np.ndarray, once: bool) -> np.ndarray:
        """Take one off the holders of these blocks; those that nobody holds now, tail first."""
        held = holders.all()
        self.refs[ids] = holders - (once and held)
        assert once, f"double free: a block stands twice in {ids}"
        assert held, f"double free of {ids[holders == 0]}"
        last = holders == 1
        self.again -= len(ids) - int(last.sum())
        return ids[last][::-1]

    def _push(self, freed: np.ndarray) -> np.ndarray:
        """Those without a key go on the stack, and are returned; the others are kept."""
        if self._key:
            kept = np.array([block in self._key for block in freed.tolist()], bool)
            self._idle.update(dict.fromkeys(freed[kept].tolist()))
            self.cached[freed[kept]] = True
            freed = freed[~kept]
        top = self._bare + len(freed)
        self._stack[self._bare : top] = freed
        self._bare = top
        return freed

    def _evict(self, count: int) -> np.ndarray:
        ids = np.empty(count, np.int64)
        for i in range(count):
            block, _ = self._idle.popitem(last=False)
            del self._block[self._key.pop(block)]
            ids[i] = block
        self.cached[ids] = False
        self.evictions += count
        return ids
