"""One pass of the decoder in plain torch, on any device: the reference, and the way on CUDA.

Attention runs sequence by sequence over what `KVStore.read` gives: a view for a contiguous
region, a gathered copy for a paged one.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
import torch.nn.functional as F

from kvviz.caches.layout import AddressTable
from kvviz.caches.store import KVStore
from kvviz.model.finite import not_finite
from kvviz.model.rows import Rows
from kvviz.model.serving import ServingModel


class TorchDecoder:
    """See `decode_cpu.CpuDecoder.logits`; the same in and out."""

    def __init__(self, model: ServingModel, store: KVStore, table: AddressTable) -> None:
        self.model, self.store, self.table = model, store, table

    def logits(self, rows: Rows) -> np.ndarray:
        model, shape = self.model, self.model.shape
        device = model.device
        positions = torch.from_numpy(rows.positions).to(device)
        slots = torch.from_numpy(np.asarray(rows.slots, np.int64)).to(device)
        x = model.embed[torch.from_numpy(np.asarray(rows.tokens, np.int64)).to(device)]
        cos, sin = model.cos[positions, None], model.sin[positions, None]
        parts = self._sequences(rows)
        heads, kv_heads, d = (shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim)
        for index, layer in enumerate(model.layers):
            qkv = self._norm(x, layer.norm_attention) @ layer.qkv
            if layer.qkv_bias is not None:
                qkv = qkv + layer.qkv_bias
            q, k, v = qkv.view(len(x), -1, d).split((heads, kv_heads, kv_heads), dim=1)
            if shape.qk_norm:
                q, k = self._norm(q, layer.norm_q), self._norm(k, layer.norm_k)
            self.store.write(index, slots, rotate(k, cos, sin), v)
            attended = self._attend(index, rotate(q, cos, sin), parts)
            x = x + attended.reshape(len(x), heads * d) @ layer.out
            gate, up = (self._norm(x, layer.norm_mlp) @ layer.gate_up).chunk(2, dim=-1)
            x = x + (F.silu(gate) * up) @ layer.down
        finite = x.isfinite().all(1)
        if not finite.all():
            raise not_finite(rows, int((~finite).nonzero()[0]), self.store, self.table)
        last = x[torch.from_numpy(rows.last).to(device)]
        return (self._norm(last, model.norm) @ model.unembed).float().cpu().numpy()

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.model.shape.rms_norm_eps)

    def _sequences(self, rows: Rows) -> list[tuple[slice, int, slice | torch.Tensor]]:
        """(rows of the batch, tokens in the cache, their slots) for each sequence."""
        cuts = np.flatnonzero(np.diff(rows.requests)) + 1
        bounds = [0, *cuts.tolist(), len(rows.requests)]
        parts = []
        for begin, end in itertools.pairwise(bounds):
            length = int(rows.positions[end - 1]) + 1
            starts = self.table.array[rows.lines[begin]]
            if length <= self.table.piece:
                where: slice | torch.Tensor = slice(int(starts[0]), int(starts[0]) + length)
            else:
                at = np.arange(length)
                index = starts[at // self.table.piece].astype(np.int64) + at % self.table.piece
                where = torch.from_numpy(index).to(self.model.device)
            parts.append((slice(begin, end), length, where))
        return parts

    def _attend(
        self, layer: int, q: torch.Tensor, parts: list[tuple[slice, int, slice | torch.Tensor]]
    ) -> torch.Tensor:
        out = torch.empty_like(q)
        for rows, length, where in parts:
            k, v = (t.transpose(0, 1) for t in self.store.read(layer, where))
            count = rows.stop - rows.start
            mask = None
            window = self.model.shape.sliding_window
            if count > 1 or 0 < window < length:
                # Row i of a chunk sees the tokens up to its own position, or the last of them
                seen = torch.arange(length, device=q.device)[None, :]
                mine = torch.arange(length - count, length, device=q.device)[:, None]
                mask = seen <= mine
                if window:
                    mask &= seen > mine - window
            out[rows] = F.scaled_dot_product_attention(
                q[rows].transpose(0, 1)[None],
                k[None].to(q.dtype),
                v[None].to(q.dtype),
                attn_mask=mask,
                enable_gqa=True,
            )[0].transpose(0, 1)
        return out


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE, rotate half. x [n, heads, d_h]; cos, sin [n, 1, d_h / 2]."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)
