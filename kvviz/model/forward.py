"""The real forward of a lane: moves, K and V, attention, sampling, and the map's check."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from kvviz.caches.budget import MiB
from kvviz.caches.layout import Journal, KeepsContent, Layout
from kvviz.caches.store import POISONED, KVStore, tags
from kvviz.engine.forward import Chunk
from kvviz.model import kernels
from kvviz.model.decode_cpu import CpuDecoder
from kvviz.model.decode_torch import TorchDecoder, rotate
from kvviz.model.device import told
from kvviz.model.draw import draw
from kvviz.model.rows import Rows, flatten
from kvviz.model.serving import ServingModel
from kvviz.records import Request, SwappedIn

_POSITION = (1 << 32) - 1
_TOLERANCE = 1e-3  # layer 0's K recomputed in another batch shape; bfloat16 needs more


class ModelForward:
    """See `engine.forward.Forward`. `prompts(request)` gives its prompt's tokens."""

    def __init__(
        self,
        model: ServingModel,
        store: KVStore,
        layout: Layout,
        *,
        prompts: Callable[[Request], np.ndarray],
        temperature: float,
        seed: int,
        bans_end: bool,
        plain: bool = False,
    ) -> None:
        self.model, self.store, self.layout = model, store, layout
        self._prompts = prompts
        self._temperature = temperature
        self._seed = seed
        self.end_tokens = model.tokenizer.end_tokens
        self._banned = np.array(sorted(self.end_tokens) if bans_end else [], np.int64)
        self._token_type = np.uint16 if model.shape.vocab_size <= 1 << 16 else np.uint32
        decoder = TorchDecoder if plain or model.device.type == "cuda" else CpuDecoder
        self._decoder: TorchDecoder | CpuDecoder | None = decoder(model, store, layout.table)
        self.resident_bytes: int | None = None
        self._known: dict[int, np.ndarray] = {}
        self._generated: dict[int, int] = {}
        self._prompt_len: dict[int, int] = {}

    @property
    def attention(self) -> str:
        """How the cache is read; empty once it is closed."""
        return self._decoder.way if self._decoder else ""

    @torch.inference_mode()
    def __call__(self, batch: list[Chunk], journal: Journal) -> np.ndarray:
        """See `engine.forward.Forward`. Raises CapacityError when a step does not fit the device
        beside the pools."""
        tokens = sum(chunk.length for chunk in batch)
        with told(
            self.store.device,
            f"a step of {tokens:,} tokens beside a pool of {self.store.nbytes / MiB:,.0f} MiB",
            "Choose fewer slots (memory.slots, memory.share) or a smaller engine.token_budget.",
        ):
            return self._step(batch, journal)

    def _step(self, batch: list[Chunk], journal: Journal) -> np.ndarray:
        self.store.apply(journal)
        for entry in journal:
            if isinstance(entry, SwappedIn):
                cut = _cut(self.layout.slots(entry.request), entry.start, entry.stop)
                self.store.swap_in(entry, cut)
        if not batch:
            return np.zeros(0, np.int64)
        for chunk in batch:
            if chunk.request.id not in self._known:
                self._open(chunk.request)
        rows = flatten(batch, self.layout.table, self._known)
        tokens = self._draw(rows)
        self.store.tag(rows.slots, rows.requests, rows.positions)
        for chunk in batch:
            for index in range(1, chunk.samples):
                self._open(chunk.request.sibling(index))
        for request, at, token in zip(
            rows.drawn.tolist(),
            rows.positions[rows.last].tolist(),
            tokens.tolist(),
            strict=True,
        ):
            self._known[request][at + 1] = token
            self._generated[request] = at + 2 - self._prompt_len[request]
        return tokens

    def _draw(self, rows: Rows) -> np.ndarray:
        """Write K and V of the batch, and draw a token for each of its last rows."""
        how = (self._temperature, self._seed, rows.drawn, rows.positions[rows.last], self._banned)
        decoder = self._decoder
        assert decoder is not None, "this forward is closed"
        if isinstance(decoder, TorchDecoder):
            return draw(decoder.on_device(rows), *how)
        tokens = np.empty(len(rows.last), np.int64)
        kernels.sample(decoder.logits(rows), *how, tokens)
        return tokens

    @property
    def move_seconds(self) -> float:
        return self.store.move_seconds

    def text(self, request_id: int) -> tuple[bytes, bytes]:
        """Prompt and generated text so far in UTF-8, of a request that is in this lane."""
        known = self._known[request_id]
        cut = self._prompt_len[request_id]
        end = cut + self._generated.get(request_id, 0)
        decode = self.model.tokenizer.decode
        return decode(known[:cut].tolist()), decode(known[cut:end].tolist())

    def finish(self, request_id: int) -> bytes:
        known = self._known.pop(request_id)
        cut = self._prompt_len.pop(request_id)
        output = known[cut : cut + self._generated.pop(request_id)]
        return output.astype(self._token_type).tobytes()

    def forget(self, request_id: int) -> None:
        self.store.forget(request_id)
        for kept in (self._known, self._prompt_len, self._generated):
            kept.pop(request_id, None)

    @torch.inference_mode()
    def check(self) -> bool:
        """Occupancy by NaN, owners by tags, and layer 0's keys recomputed from the tokens."""
        if not self.store.poisons:
            raise ValueError(
                "a map can be rebuilt from the tensors only when freed slots are "
                "poisoned: set engine.check_every above 0"
            )
        # Reading it takes the system milliseconds a GiB: with each check, not with each picture
        self.resident_bytes = getattr(self.store, "resident_bytes", None)
        expected = np.full(self.store.slots, POISONED, np.int64)
        live = list(self._live())
        for request_id in live:
            slots = self.layout.slots(request_id)
            expected[slots] = tags(request_id, np.arange(self.layout.written(request_id)))
        try:
            rebuilt = self.store.written_map()
        except AssertionError:
            return False
        self._allow_shared(expected, rebuilt, live)
        return bool(np.array_equal(rebuilt, expected)) and self._keys_match(live)

    def close(self) -> None:
        self._decoder = None  # it holds views of the pool, which would keep it alive
        self.store.close()

    def _open(self, request: Request) -> None:
        known = np.zeros(request.prompt_len + max(request.output_len, request.limit) + 1, np.int32)
        known[: request.prompt_len] = self._prompts(request)
        self._known[request.id] = known
        self._prompt_len[request.id] = request.prompt_len

    def _allow_shared(self, expected: np.ndarray, rebuilt: np.ndarray, live: list[int]) -> None:
        """A shared slot names the request that wrote it, which may have left: its position must
        be right (and its key is compared with that of the token). A cached slot may hold anything.
        """
        if not self.layout.copies_on_write:
            return
        held = np.zeros(self.store.slots, np.int32)
        for request_id in live:
            held[self.layout.slots(request_id)] += 1
        written = (expected != POISONED) & (rebuilt != POISONED)
        same_place = written & ((expected & _POSITION) == (rebuilt & _POSITION))
        expected[same_place] = rebuilt[same_place]
        if isinstance(self.layout, KeepsContent):
            cached = self.layout.cached_slots()
            expected[cached] = rebuilt[cached]

    def _live(self) -> list[int]:
        return [r for r in self._known if self.layout.holds(r)]

    def _keys_match(self, live: list[int]) -> bool:
        """Does each slot hold the key of the token that belongs there?"""
        if not live:
            return True
        shape, layer = self.model.shape, self.model.layers[0]
        lengths = [self.layout.written(r) for r in live]
        tokens = np.concatenate([self._known[r][:n] for r, n in zip(live, lengths, strict=True)])
        positions = torch.from_numpy(np.concatenate([np.arange(n) for n in lengths]))
        at = np.arange(self.store.slots)
        slots = torch.from_numpy(np.concatenate([at[self.layout.slots(r)] for r in live]))
        heads, kv_heads, d = (shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim)
        device = self.model.device
        x = self.model.embed[torch.from_numpy(tokens.astype(np.int64)).to(device)]
        h = torch.nn.functional.rms_norm(x, (x.shape[1],), layer.norm_attention, shape.rms_norm_eps)
        columns = slice(heads * d, (heads + kv_heads) * d)
        k = h @ layer.qkv[:, columns]
        if layer.qkv_bias is not None:
            k = k + layer.qkv_bias[columns]
        k = k.view(-1, kv_heads, d)
        if layer.norm_k is not None:
            k = torch.nn.functional.rms_norm(k, (d,), layer.norm_k, shape.rms_norm_eps)
        positions = positions.to(device)
        k = rotate(k, self.model.cos[positions, None], self.model.sin[positions, None])
        held, _ = self.store.read(0, slots.to(device))
        tolerance = _TOLERANCE if held.dtype == torch.float32 else 0.1
        return torch.allclose(held.float(), k.float(), atol=tolerance, rtol=tolerance)


def _cut(slots: slice | np.ndarray, start: int, stop: int) -> slice | np.ndarray:
    if isinstance(slots, slice):
        return slice(slots.start + start, slots.start + stop)
    return slots[start:stop]
