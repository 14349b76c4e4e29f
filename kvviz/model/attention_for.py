"""The best attention that a device has for a cache: chosen by rules, then tried on a few tokens."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn.attention import current_flash_attention_impl

from kvviz.caches.layout import AddressTable
from kvviz.caches.store import KVStore
from kvviz.model import ways
from kvviz.model.attention import (
    Attention,
    Reads,
    VarlenAttn,
    build,
    by_hand,
    call,
    torch_varlen_attn,
)
from kvviz.model.ways import Kernel, Way
from kvviz.shapes import ModelShape

_PROBE_TOLERANCE = 0.05  # bfloat16 has 8 bits, and the two kernels add up in another order


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
    attend = attend or torch_varlen_attn()
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
        found = call(attend, kernel, q, k, v, reads, (-1, 0))
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


def _int32(numbers: object, device: torch.device) -> torch.Tensor:
    return torch.tensor(np.asarray(numbers).tolist(), dtype=torch.int32, device=device)
