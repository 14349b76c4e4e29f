"""One pass of the decoder in plain torch, on any device: the reference, and the way on CUDA.

How it reads the cache is `attention`'s choice; `attention.way` says which and why.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from kvviz.caches.layout import AddressTable
from kvviz.caches.store import KVStore
from kvviz.model.attention import Attention, Inputs
from kvviz.model.attention_for import attention_for
from kvviz.model.finite import not_finite
from kvviz.model.graphs import Capture, DecodeGraphs, cuda_capture, graphs_over
from kvviz.model.rows import Rows
from kvviz.model.serving import ServingModel


class TorchDecoder:
    """See `decode_cpu.CpuDecoder.logits`; the same in and out."""

    def __init__(
        self,
        model: ServingModel,
        store: KVStore,
        table: AddressTable,
        attention: Attention | None = None,
    ) -> None:
        self.model, self.store, self.table = model, store, table
        self.attention = attention or attention_for(model.shape, store, table)
        self._graphs: DecodeGraphs | None = None
        if store.device.type == "cuda":
            self.capture_with(cuda_capture)

    def capture_with(self, capture: Capture) -> None:
        """Serve decode steps from captured ones, where the attention reads in place."""
        longest = self.model.shape.max_position_embeddings
        self._graphs = graphs_over(self.run, self.attention, self.store.device, longest, capture)

    @property
    def way(self) -> str:
        """How the cache is read, for the page and the JSON."""
        graphs = f"; {self._graphs.state}" if self._graphs else ""
        return self.attention.way.text + graphs

    def logits(self, rows: Rows) -> np.ndarray:
        return self.on_device(rows).float().cpu().numpy()

    def on_device(self, rows: Rows) -> torch.Tensor:
        """The logits where they were computed, to be used before the next call."""
        rows = self.attention.ordered(rows)
        found = self._graphs.logits(rows) if self._graphs else None
        if found is not None:
            self._found_finite(found, rows, rows.last)
            return found
        batch = self.inputs(rows)
        x = self._hidden(batch)
        self._found_finite(x, rows)
        return self._head(x, batch)

    def inputs(self, rows: Rows) -> Inputs:
        """An ordered batch on the device."""
        tokens, positions, slots, last = (
            torch.from_numpy(np.asarray(column, np.int64)).to(self.model.device)
            for column in (rows.tokens, rows.positions, rows.slots, rows.last)
        )
        return Inputs(tokens, positions, slots, last, self.attention.reads(rows))

    def run(self, batch: Inputs) -> torch.Tensor:
        """Write K and V of all rows; logits [tokens drawn, vocab] on the device."""
        return self._head(self._hidden(batch), batch)

    def _hidden(self, batch: Inputs) -> torch.Tensor:
        model, shape = self.model, self.model.shape
        x = model.embed[batch.tokens]
        cos, sin = model.cos[batch.positions, None], model.sin[batch.positions, None]
        heads, kv_heads, d = (shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim)
        for index, layer in enumerate(model.layers):
            qkv = self._norm(x, layer.norm_attention) @ layer.qkv
            if layer.qkv_bias is not None:
                qkv = qkv + layer.qkv_bias
            q, k, v = qkv.view(len(x), -1, d).split((heads, kv_heads, kv_heads), dim=1)
            if layer.norm_q is not None and layer.norm_k is not None:
                q, k = self._norm(q, layer.norm_q), self._norm(k, layer.norm_k)
            self.store.write(index, batch.slots, rotate(k, cos, sin), v)
            attended = self.attention(index, rotate(q, cos, sin), batch.reads)
            x = x + attended.reshape(len(x), heads * d) @ layer.out
            gate, up = (self._norm(x, layer.norm_mlp) @ layer.gate_up).chunk(2, dim=-1)
            x = x + (F.silu(gate) * up) @ layer.down
        return x

    def _head(self, x: torch.Tensor, batch: Inputs) -> torch.Tensor:
        return self._norm(x[batch.last], self.model.norm) @ self.model.unembed

    def _found_finite(self, values: torch.Tensor, rows: Rows, at: np.ndarray | None = None) -> None:
        """Raises for the first of these rows of the batch (all, or those at `at`) that is not."""
        finite = values.isfinite().all(1)
        if not finite.all():
            row = int((~finite).nonzero()[0])
            raise not_finite(rows, row if at is None else int(at[row]), self.store, self.table)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.model.shape.rms_norm_eps)


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE, rotate half. x [n, heads, d_h]; cos, sin [n, 1, d_h / 2]."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)
