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
from torch.nn.attention import current_flash_attention_impl

from kvviz.caches.layout import AddressTable
from kvviz.caches.store import KVStore
from kvviz.model import varlen, ways
from kvviz.model.rows import Rows
from kvviz.model.varlen import Varlen
from kvviz.model.ways import Kernel, Way
from kvviz.shapes import ModelShape

VarlenAttn = Callable[..., torch.Tensor]
_PROBE_TOLERANCE = 0.05  # bfloat16 has 8 bits, and the two kernels add up in another order


class Reads(NamedTuple):
    """`varlen.Varlen` on the device."""

    cu_seq_q: torch.Tensor
    cu_seq_k: torch.Tensor
    seqused_k: torch.Tensor
    max_q: int
    max_k: int
    block_table: torch.Tensor | None
    index: torch.Tensor | None


class Inputs(NamedTuple):
    """A batch on the device: tokens, positions, slots int64 [rows], `last` int64 [tokens drawn],
    and what its attention reads."""

    tokens: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    last: torch.Tensor
    reads: Any


class Attention(Protocol):
    """way: how it reads, and why."""

    way: Way

    def ordered(self, rows: Rows) -> Rows:
        """The batch in the order in which `reads` wants it."""

    def reads(self, rows: Rows) -> object:
        """What the batch reads, on the device."""

    def __call__(self, layer: int, q: torch.Tensor, reads: object) -> torch.Tensor:
        """q [rows, heads, d_h] -> the same shape."""


def attention_for(
    shape: ModelShape, store: KVStore, table: AddressTable, attend: VarlenAttn | None = None
) -> Attention:
    """The best attention that the device has for this cache.

    On CUDA a way is tried on a few tokens first, against `scaled_dot_product_attention`: one that
    fails or gives other numbers is not used, and `way` says so. `attend`: instead of torch's own.
    """
    kernel = kernel_of(shape, store, table)
    way = ways.choose(kernel)
    if way.name == ways.IN_PLACE and (
        fault := probe(kernel, store.device, attend, poisoned=store.poisons)
    ):
        way = Way(ways.PACKED, fault)
    if way.name == ways.PACKED and (fault := probe(kernel._replace(block=0), store.device, attend)):
        way = Way(ways.BY_SEQUENCE, fault)
    return build(way, kernel, shape, store, table, attend)


def build(
    way: Way,
    kernel: Kernel,
    shape: ModelShape,
    store: KVStore,
    table: AddressTable,
    attend: VarlenAttn | None = None,
) -> Attention:
    if way.name == ways.BY_SEQUENCE:
        return BySequence(way, shape, store, table)
    return Flash(way, kernel, shape, store, table, attend or _varlen_attn())


def kernel_of(shape: ModelShape, store: KVStore, table: AddressTable) -> Kernel:
    """What the choice depends on, read from the device and the store."""
    device = store.device
    kind, capability = device.type, (0, 0)
    if kind == "cuda":
        kind = "rocm" if torch.version.hip else "cuda"
        capability = torch.cuda.get_device_capability(device)
    return Kernel(
        kind,
        capability,
        str(store.dtype).removeprefix("torch."),
        shape.head_dim,
        0 if table.piece >= store.slots else table.piece,
        current_flash_attention_impl() or ways.FLASH2,
    )


def probe(
    kernel: Kernel,
    device: torch.device,
    attend: VarlenAttn | None = None,
    *,
    poisoned: bool = False,
) -> str:
    """Why `varlen_attn` is not to be used for such a cache; empty when its numbers are right.

    Two sequences of a pool of two blocks, or of two regions in one, one query and two.
    poisoned: what is not written is NaN, and a kernel that multiplies it by 0 shows it."""
    attend = attend or _varlen_attn()
    block, d = kernel.block or 64, kernel.head_dim
    dtype = getattr(torch, kernel.dtype)
    made = torch.Generator().manual_seed(0)
    k, v = (torch.randn(2 * block, 1, d, generator=made).to(device, dtype) for _ in "kv")
    q = torch.randn(3, 2, d, generator=made).to(device, dtype)
    lengths = (min(5, block), block)
    homes = (block, 0) if kernel.block else (0, block)
    if poisoned:
        k[homes[0] + lengths[0] : homes[0] + block] = torch.nan
        v[homes[0] + lengths[0] : homes[0] + block] = torch.nan
    reads = Reads(
        _int32([0, 1, 3], device),
        _int32([0, *np.cumsum(lengths)] if kernel.block else [0, block, 2 * block], device),
        _int32(lengths, device),
        2,
        block,
        _int32([[1], [0]], device) if kernel.block else None,
        None,
    )
    try:
        found = _call(attend, kernel, q, k, v, reads, (-1, 0))
    except (RuntimeError, TypeError, ValueError) as error:  # Type, Value: another torch's signature
        return f"varlen_attn says: {str(error).splitlines()[0]}"
    for rows, home, length in zip((slice(0, 1), slice(1, 3)), homes, lengths, strict=True):
        keys = slice(home, home + length)
        expected = by_hand(q[rows], k[keys], v[keys], 0)
        if not torch.allclose(
            found[rows].float(), expected.float(), atol=_PROBE_TOLERANCE, rtol=_PROBE_TOLERANCE
        ):
            return "varlen_attn gave other numbers than scaled_dot_product_attention here"
    return ""


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

    def arguments(self, rows: Rows, width: int = 0) -> Varlen:
        """Of an ordered batch, on the host."""
        if self.way.name == ways.PACKED:
            return varlen.packed(rows, self._table)
        if self._whole:
            return varlen.of_regions(rows, self._table)
        return varlen.of_blocks(rows, self._table, width)

    def reads(self, rows: Rows) -> Reads:
        args = self.arguments(rows)
        put = (
            None if a is None else torch.from_numpy(a).to(self._store.device)
            for a in (args.cu_seq_q, args.cu_seq_k, args.seqused_k, args.block_table, args.index)
        )
        cu_seq_q, cu_seq_k, seqused_k, block_table, index = put
        return Reads(cu_seq_q, cu_seq_k, seqused_k, args.max_q, args.max_k, block_table, index)

    def __call__(self, layer: int, q: torch.Tensor, reads: Reads) -> torch.Tensor:
        k, v = self._store.view[layer, 0], self._store.view[layer, 1]
        if reads.index is not None:
            k, v = k.index_select(0, reads.index), v.index_select(0, reads.index)
        return _call(self._attend, self._kernel, q, k, v, reads, self._window)


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


def _call(
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


def _varlen_attn() -> VarlenAttn:
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn


def _int32(numbers: object, device: torch.device) -> torch.Tensor:
    return torch.tensor(np.asarray(numbers).tolist(), dtype=torch.int32, device=device)
