"""The tensors of the virtually contiguous layout: one tensor over a range of reserved addresses,
with memory under its mapped pages only.

A page of the layout is room for K and V of all layers of its slots, and lies in memory in one of
two ways:

- head-major, `[L, 2, H_kv, virtual_slots, d_h]`, as the other layouts do on the CPU, where the
  share of each head is whole pages of the system: a page then is 2 * L * H_kv such shares, and the
  keys of one head lie side by side for as long as its request is.
- slot-major, `[virtual_slots, L, 2, H_kv, d_h]` (vAttention's tensor slicing), where it is not:
  one token would cost a page of the system for each head's K and V, instead of one in all. The
  price is locality: the keys of one head lie a slot's bytes apart, and attention takes four times
  as long.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from kvviz.caches.budget import PoolBudget
from kvviz.caches.layout import Layout
from kvviz.caches.reserved import OS_PAGE, ReservedRange
from kvviz.caches.store import POISONED, KVStore, tags_shown
from kvviz.caches.virtual import VirtualLayout
from kvviz.errors import KvvizError
from kvviz.shapes import ModelShape


class VirtualStore(KVStore):
    """`slots` are virtual; `pages` pages of `page_slots` slots are the memory the budget gives.

    mapped: bool [virtual pages]. head_major: which of the two ways.
    Addresses without memory read as zeros, and are never read by whoever asks for the map.
    Raises KvvizError on a device or a system that can't map memory by the page.
    """

    def __init__(
        self,
        shape: ModelShape,
        slots: int,
        device: torch.device,
        *,
        page_slots: int,
        pages: int,
        budget: PoolBudget,
        poison: bool,
    ) -> None:
        self.page_slots, self.pages = page_slots, pages
        self.mapped = np.zeros(-(-slots // page_slots), bool)
        super().__init__(shape, slots, device, budget=budget, poison=poison)

    @property
    def mapped_bytes(self) -> int:
        """What the bookkeeping says is mapped."""
        return int(self.mapped.sum()) * self.page_slots * self.slot_bytes

    @property
    def resident_bytes(self) -> int:
        """What the system says is in memory: equal to `mapped_bytes`, up to one page of the
        system at each end where the two kinds of page don't share their boundaries."""
        return self._reserved.resident_bytes()

    def written_map(self) -> np.ndarray:
        """See KVStore. Pages that are not mapped are not looked at: they hold nothing."""
        slots = np.flatnonzero(np.repeat(self.mapped, self.page_slots)[: self.slots])
        found = np.full(self.slots, POISONED, np.int64)
        mapped = self.view[:, :, torch.from_numpy(slots)]
        found[slots] = tags_shown(mapped, self.tags[slots], slots)
        return found

    def close(self) -> None:
        if self._bytes:
            self._reserved.close()
        super().close()

    def _size(self) -> int:
        return self.pages * self.page_slots * self.slot_bytes

    def _allocate(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        if device.type != "cpu":
            raise KvvizError(
                f"the virtual layout maps memory on the CPU only, not on {device}. Set "
                "CUDA_VISIBLE_DEVICES= (empty) to serve on the CPU, or leave this layout out."
            )
        layers, heads, d = (
            self.shape.num_hidden_layers,
            self.shape.num_key_value_heads,
            self.shape.head_dim,
        )
        self.head_major = self.page_slots * d * self.dtype.itemsize % OS_PAGE == 0
        self._reserved = ReservedRange(self.slots * self.slot_bytes)
        data = torch.frombuffer(
            self._reserved.buffer, dtype=self.dtype, count=self.slots * self.shape.slot_elements
        )
        if self.head_major:
            data = data.view(layers, 2, heads, self.slots, d)
            return data, data.transpose(2, 3)
        data = data.view(self.slots, layers, 2, heads, d)
        return data, data.permute(1, 2, 0, 3, 4)

    def _map(self, start: int, size: int) -> None:
        pages = self._pages(start, size)
        assert not self.mapped[pages].any(), f"a page of slots {start} to {start + size} twice"
        self.mapped[pages] = True
        if self.poisons:
            self._poison(start, size)
        else:
            for begin, end in self._pieces(start, size):
                self._reserved.touch(begin, end - begin)

    def _unmap(self, start: int, size: int) -> None:
        pages = self._pages(start, size)
        assert self.mapped[pages].all(), f"a page of slots {start} to {start + size} is not mapped"
        self.mapped[pages] = False
        self.tags[start : start + size] = POISONED
        for begin, end in self._pieces(start, size):
            if not self.head_major:
                begin, end = self._unshared(begin, end)
            self._reserved.give_back(begin, end - begin)

    def _pieces(self, start: int, size: int) -> Iterator[tuple[int, int]]:
        """Bytes [begin, end) of these slots: in one piece, or one for each head's K and V."""
        pieces = self.slot_bytes // self._row_bytes
        for piece in range(pieces):
            begin = (piece * self.slots + start) * self._row_bytes
            yield begin, begin + size * self._row_bytes

    @property
    def _row_bytes(self) -> int:
        """Bytes of a slot that lie side by side."""
        return self.shape.head_dim * self.dtype.itemsize if self.head_major else self.slot_bytes

    def _pages(self, start: int, size: int) -> slice:
        assert start % self.page_slots == 0 == size % self.page_slots, (
            f"slots {start} to {start + size} are not whole pages of {self.page_slots}"
        )
        return slice(start // self.page_slots, (start + size) // self.page_slots)

    def _unshared(self, begin: int, end: int) -> tuple[int, int]:
        """Bytes [begin, end) of the system's pages that touch these bytes and no mapped page.

        They are more or fewer than the bytes when `page_bytes` is no multiple of a slot's bytes.
        """
        first, last = begin // OS_PAGE, -(-end // OS_PAGE)
        while first < last and self._holds_a_mapped(first):
            first += 1
        while first < last and self._holds_a_mapped(last - 1):
            last -= 1
        return first * OS_PAGE, last * OS_PAGE

    def _holds_a_mapped(self, os_page: int) -> bool:
        size = self.page_slots * self.slot_bytes
        begin, end = os_page * OS_PAGE, (os_page + 1) * OS_PAGE
        return bool(self.mapped[begin // size : -(-end // size)].any())


def store_for(
    layout: Layout, shape: ModelShape, device: torch.device, *, budget: PoolBudget, poison: bool
) -> KVStore:
    """The tensors that a layout's slots are addresses of. Raises CapacityError, KvvizError."""
    if not isinstance(layout, VirtualLayout):
        return KVStore(shape, layout.capacity, device, budget=budget, poison=poison)
    return VirtualStore(
        shape,
        layout.virtual_slots,
        device,
        page_slots=layout.page_slots,
        pages=layout.pages,
        budget=budget,
        poison=poison,
    )
