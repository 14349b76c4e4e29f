"""One pass of the decoder on the CPU: torch's matrix products, numba for all between them.

Row results do not depend on how many other rows are in the batch: below `ROW_FLOOR` rows torch's
sgemm picks other kernels, which add up in another order, so smaller batches are padded. That is
what makes two lanes with different batches produce the same tokens.
"""

from __future__ import annotations

import numpy as np
import torch

from kvviz.caches.layout import AddressTable
from kvviz.caches.store import KVStore
from kvviz.model import kernels
from kvviz.model.finite import not_finite
from kvviz.model.rows import Rows
from kvviz.model.serving import ServingModel, product

ROW_FLOOR = 16


class CpuDecoder:
    """Reads and writes one lane's store in place. Buffers are reused from step to step."""

    way = "CPU kernels, in place"

    def __init__(self, model: ServingModel, store: KVStore, table: AddressTable) -> None:
        self.model, self.store, self.table = model, store, table
        shape = model.shape
        self._heads = shape.num_attention_heads
        self._eps = np.float32(shape.rms_norm_eps)
        self._norms = [
            (layer.norm_attention.numpy(), layer.norm_mlp.numpy()) for layer in model.layers
        ]
        self._head_norms = [
            (layer.norm_q.numpy(), layer.norm_k.numpy())
            if layer.norm_q is not None and layer.norm_k is not None
            else None
            for layer in model.layers
        ]
        self._cos, self._sin = model.cos.numpy(), model.sin.numpy()
        self._kv = [store.planes(i) for i in range(shape.num_hidden_layers)]
        group = self._heads // shape.num_key_value_heads
        self._scores = np.empty((group, shape.max_position_embeddings), np.float32)
        self._bits = np.empty(shape.max_position_embeddings, np.int32)
        self._buffers: dict[str, tuple[torch.Tensor, np.ndarray]] = {}

    def logits(self, rows: Rows) -> np.ndarray:
        """Write K and V of all rows; logits float32 [last rows, vocab]."""
        n = len(rows.tokens)
        padded = max(n, ROW_FLOOR)
        shape = self.model.shape
        x = torch.zeros(padded, shape.hidden_size)
        torch.index_select(self.model.embed, 0, torch.from_numpy(rows.tokens), out=x[:n])
        xn = x.numpy()
        h, hn = self._buffer("h", padded, shape.hidden_size)
        qkv, qkvn = self._buffer("qkv", padded, self.model.layers[0].qkv.shape[1])
        attention, an = self._buffer("a", padded, self._heads * shape.head_dim)
        gate_up, gun = self._buffer("gu", padded, 2 * shape.intermediate_size)
        inner, inn = self._buffer("i", padded, shape.intermediate_size)
        for layer, (norm_1, norm_2), head_norms, kv in zip(
            self.model.layers, self._norms, self._head_norms, self._kv, strict=True
        ):
            kernels.rms_norm(xn, norm_1, self._eps, hn)
            torch.mm(h, layer.qkv, out=qkv)
            if layer.qkv_bias is not None:
                qkv += layer.qkv_bias
            if head_norms is not None:
                kernels.head_norms(
                    qkvn, *head_norms, self._eps, self._heads, shape.num_key_value_heads
                )
            kernels.rotate_and_store(
                qkvn, self._cos, self._sin, rows.positions, rows.slots, self._heads, *kv
            )
            unread = kernels.attend(
                qkvn,
                *kv,
                self.table.array,
                self.table.piece,
                rows.lines,
                rows.positions,
                self._heads,
                shape.sliding_window,
                self._scores,
                self._bits,
                an,
            )
            if unread >= 0:
                raise not_finite(rows, unread, self.store, self.table)
            x.addmm_(attention, layer.out)
            kernels.rms_norm(xn, norm_2, self._eps, hn)
            torch.mm(h, layer.gate_up, out=gate_up)
            kernels.swiglu(gun, inn)
            x.addmm_(inner, layer.down)
        return self._unembed(x, rows.last)

    def _unembed(self, x: torch.Tensor, last: np.ndarray) -> np.ndarray:
        count = max(len(last), ROW_FLOOR)
        picked = torch.zeros(count, x.shape[1])
        torch.index_select(x, 0, torch.from_numpy(last), out=picked[: len(last)])
        h, hn = self._buffer("h", count, x.shape[1])
        kernels.rms_norm(picked.numpy(), self.model.norm.numpy(), self._eps, hn)
        packed = self.model.unembed_packed
        logits = torch.mm(h, self.model.unembed) if packed is None else product(h, packed)
        return logits[: len(last)].numpy()

    def _buffer(self, name: str, rows: int, width: int) -> tuple[torch.Tensor, np.ndarray]:
        """A reused buffer [rows, width], as torch and as numpy (the same memory)."""
        whole = self._buffers.get(name)
        if whole is None or len(whole[1]) < rows:
            array = np.zeros((max(rows, 256), width), np.float32)
            whole = self._buffers[name] = (torch.from_numpy(array), array)
        return whole[0][:rows], whole[1][:rows]
