"""Attention over a store in torch: in place through `varlen_attn`, or from a gathered copy.

`reads(rows)` turns a batch's addresses into tensors once a pass; calling it with a layer and the
queries is then free of the host, as a CUDA graph wants it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F

from kvviz.caches.layout import AddressTable
from kvviz.caches.store import KVStore
from kvviz.model import varlen, ways
from kvviz.model.rows import Rows
from kvviz.model.varlen import Varlen
from kvviz.model.ways import Kernel, Way
from kvviz.shapes import ModelShape

VarlenAttn = Callable[..., Any]  # -> a tensor, unless more is asked for


class Reads(NamedTuple):
    """`varlen.Varlen` on the device."""

    cu_seq_q: torch.Tensor
    cu_seq_k: torch.Tensor
    seqused_k: torch.Tensor
    max_q: int
    max_k: int
    block_table: torch.Tensor | None
    slots: torch.Tensor | None


class Inputs(NamedTuple):
    """A batch on the device: tokens, positions, slots int64 [rows], `last` int64 [tokens drawn],
    and what its attention reads."""

    tokens: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    last: torch.Tensor
    reads: Any


class Attention(Protocol):
    """way: how it reads, and why. What `reads` gives is for the same attention's call alone."""

    way: Way

    def ordered(self, rows: Rows) -> Rows:
        """The batch in the order in which `reads` wants it."""

    def reads(self, rows: Rows) -> Any:
        """What the batch reads, on the device."""

    def __call__(self, layer: int, q: torch.Tensor, reads: Any) -> torch.Tensor:
        """q [rows, heads, d_h] -> the same shape."""


def build(
    way: Way,
    kernel: Kernel,
    shape: ModelShape,
    store: KVStore,
    table: AddressTable,
    attend: VarlenAttn | None = None,
) -> Attention:
    """Attention that reads in this way; `attend` instead of torch's own `varlen_attn`."""
    if way.name == ways.BY_SEQUENCE:
        return BySequence(way, shape, store, table)
    return Flash(way, kernel, shape, store, table, attend or torch_varlen_attn())


class Flash:
    """`varlen_attn` over the pool in place, or over a packed copy of what is read.

    One split of the keys: more would make a sequence's bits depend on its batch, and torch's own
    kernel loses rows of paged batches then (pytorch issue 194167).
    """

    def __init__(
        self,
        way: Way,
        kernel: Kernel,
        shape: ModelShape,
        store: KVStore,
        table: AddressTable,
        attend: VarlenAttn,
    ) -> None:
        self.way = way
        self._kernel = kernel if way.name == ways.IN_PLACE else kernel._replace(block=0)
        self._store, self._table, self._attend = store, table, attend
        left = shape.sliding_window - 1 if shape.sliding_window else -1
        self._window = (left, 0)
        self._whole = way.name == ways.IN_PLACE and not kernel.block

    @property
    def block(self) -> int:
        """Slots in a block that is read in place, 0 for regions."""
        return self._kernel.block

    def ordered(self, rows: Rows) -> Rows:
        return varlen.by_address(rows, self._table) if self._whole else rows

    @property
    def packs(self) -> bool:
        """Does it read from a copy?"""
        return self.way.name == ways.PACKED

    def arguments(self, rows: Rows, width: int = 0, keys: int = 0) -> Varlen:
        """Of an ordered batch, on the host; the block table `width` blocks wide, the copy `keys`
        keys long, or as large as they must be."""
        if self.packs:
            return varlen.packed(rows, self._table, keys)
        if self._whole:
            return varlen.of_regions(rows, self._table)
        return varlen.of_blocks(rows, self._table, width)

    def reads(self, rows: Rows) -> Reads:
        args = self.arguments(rows)

        def put(column: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(column).to(self._store.device)

        return Reads(
            put(args.cu_seq_q),
            put(args.cu_seq_k),
            put(args.seqused_k),
            args.max_q,
            args.max_k,
            None if args.block_table is None else put(args.block_table),
            None if args.slots is None else put(args.slots),
        )

    def __call__(self, layer: int, q: torch.Tensor, reads: Reads) -> torch.Tensor:
        k, v = self._store.view[layer, 0], self._store.view[layer, 1]
        if reads.slots is not None:
            k, v = k.index_select(0, reads.slots), v.index_select(0, reads.slots)
        return call(self._attend, self._kernel, q, k, v, reads, self._window)


class BySequence:
    """`scaled_dot_product_attention` for each sequence, over a view or a gathered copy."""

    def __init__(self, way: Way, shape: ModelShape, store: KVStore, table: AddressTable) -> None:
        self.way = way
        self._store, self._table = store, table
        self._window = shape.sliding_window

    def ordered(self, rows: Rows) -> Rows:
        return rows

    def reads(self, rows: Rows) -> list[tuple[slice, slice | torch.Tensor]]:
        """(rows of the batch, their slots) for each sequence."""
        parts: list[tuple[slice, slice | torch.Tensor]] = []
        for begin, end, length in varlen.sequences(rows):
            line = rows.lines[begin]
            where: slice | torch.Tensor
            if length <= self._table.piece:
                start = int(self._table.array[line, 0])
                where = slice(start, start + length)
            else:
                where = torch.from_numpy(varlen.slots_of(self._table, line, length))
                where = where.to(self._store.device)
            parts.append((slice(begin, end), where))
        return parts

    def __call__(
        self, layer: int, q: torch.Tensor, reads: list[tuple[slice, slice | torch.Tensor]]
    ) -> torch.Tensor:
        out = torch.empty_like(q)
        for rows, where in reads:
            k, v = self._store.read(layer, where)
            out[rows] = by_hand(q[rows], k, v, self._window)
        return out


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int) -> torch.Tensor:
    """Causal attention of the last rows of one sequence: q [rows, heads, d_h], k and v
    [tokens, H_kv, d_h]. A row sees the tokens up to its own, or the last `window` of them."""
    count, length = len(q), len(k)
    mask = None
    if count > 1 or 0 < window < length:
        seen = torch.arange(length, device=q.device)[None, :]
        mine = torch.arange(length - count, length, device=q.device)[:, None]
        mask = seen <= mine
        if window:
            mask &= seen > mine - window
    q, k, v = (t.transpose(0, 1)[None].to(q.dtype) for t in (q, k, v))
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return mixed[0].transpose(0, 1)


def call(
    attend: VarlenAttn,
    kernel: Kernel,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    reads: Reads,
    window: tuple[int, int],
) -> torch.Tensor:
    """k, v [slots, H_kv, d_h]; a rest of the pool behind its last whole block belongs to none."""
    if kernel.block:
        blocks = len(k) // kernel.block
        k, v = (t[: blocks * kernel.block].unflatten(0, (blocks, kernel.block)) for t in (k, v))
    return attend(
        q,
        k,
        v,
        reads.cu_seq_q,
        reads.cu_seq_k if ways.takes_starts(kernel) else None,
        reads.max_q,
        reads.max_k,
        window_size=window,
        enable_gqa=True,
        seqused_k=reads.seqused_k,
        block_table=reads.block_table,
        num_splits=1,
    )


def torch_varlen_attn() -> VarlenAttn:
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn
