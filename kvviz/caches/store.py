"""KVStore: the tensors. One allocation a lane, one row a slot, K and V of every layer.

Addressed as `[L, 2, slots, H_kv, d_h]`; laid out head-major (`[L, 2, H_kv, slots, d_h]`) on the
CPU, where one head's keys then lie side by side, and token-major on CUDA, where paged kernels
want it. `view` hides which, and `planes` gives the same as rows of d_h numbers.

Beside K and V lies one int64 tag a slot, (request << 32) | position, written and copied together
with them; -1 where the slot is poisoned. Tags and NaN are what the map is rebuilt from.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np
import torch

from kvviz.caches.budget import MiB, PoolBudget, host_memory_bytes
from kvviz.caches.layout import Journal
from kvviz.caches.moves import carry_out
from kvviz.errors import CapacityError
from kvviz.records import Freed, FreedBlocks, Mapped, Move, SwappedIn, SwappedOut, Unmapped
from kvviz.shapes import ModelShape

POISONED = -1
_NOTHING, _NO_RUNS = np.zeros(0, np.uint8), np.zeros(0, np.int64)


def tags(requests: np.ndarray | int, positions: np.ndarray) -> np.ndarray:
    """int64: whose token, and which one: (request << 32) | position."""
    return (np.asarray(requests, np.int64) << 32) | positions


def element_type(device: torch.device) -> torch.dtype:
    """What K and V are kept as on this device."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


class Planes(NamedTuple):
    """K and V of one layer, float32 [rows, d_h]: head h of slot s is row
    `h * head_step + s * slot_step`."""

    k: np.ndarray
    v: np.ndarray
    head_step: int
    slot_step: int


class KVStore:
    """`poison`: freed slots are filled with NaN, so that a stray read can't go unnoticed."""

    def __init__(
        self,
        shape: ModelShape,
        slots: int,
        device: torch.device,
        *,
        budget: PoolBudget,
        poison: bool,
    ) -> None:
        self.shape = shape
        self.slots = slots
        self.device = device
        self.dtype = element_type(device)
        self.slot_bytes = shape.slot_bytes(self.dtype.itemsize)
        self.poisons = poison
        self.move_seconds = 0.0
        self._budget = budget
        self._bytes = self._size()
        budget.take(self._bytes)
        try:
            # The whole pool as it lies in memory, and [L, 2, slots, H_kv, d_h] over it
            self.data, self.view = self._allocate(device)
        except BaseException:
            budget.give_back(self._bytes)
            self._bytes = 0
            raise
        # For `carry_out`. On a device there are no runs that it could move, tags alone
        self._pool, self._runs = _NOTHING, _NO_RUNS
        if device.type == "cpu":
            self._pool = self.data.numpy().reshape(-1).view(np.uint8)
            self._runs = _runs(self.view)
        self._step = self.view.stride(2) * self.view.element_size()
        self.tags = np.full(slots, POISONED, np.int64)
        self._host: dict[int, tuple[torch.Tensor, np.ndarray]] = {}

    @property
    def nbytes(self) -> int:
        """Bytes of K and V that the pool may fill; 0 when it is closed."""
        return self._bytes

    def write(self, layer: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """k, v [n, H_kv, d_h] go to slots int64 [n] of this layer."""
        self.view[layer, 0, slots] = k.to(self.dtype)
        self.view[layer, 1, slots] = v.to(self.dtype)

    def read(self, layer: int, slots: slice | torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V [n, H_kv, d_h]: views for a slice, gathered copies for an index tensor."""
        return self.view[layer, 0, slots], self.view[layer, 1, slots]

    def planes(self, layer: int) -> Planes:
        """K and V of a layer in place, for the CPU kernels."""
        d = self.shape.head_dim
        rows = self.data.numpy().reshape(-1, d)
        k, v = self.view[layer, 0], self.view[layer, 1]
        slot_step, head_step, _ = k.stride()
        return Planes(
            rows[k.storage_offset() // d :],
            rows[v.storage_offset() // d :],
            head_step // d,
            slot_step // d,
        )

    def tag(self, slots: np.ndarray, requests: np.ndarray, positions: np.ndarray) -> None:
        """Say whose token each slot [n] holds from now on."""
        self.tags[slots] = tags(requests, positions)

    def apply(self, journal: Journal) -> None:
        """Carry out moves, frees, mappings and swaps to the host, in order. Swaps back come after
        all of them, when addresses are final: the caller knows those (`swap_in`)."""
        moves: list[Move] = []  # those that nothing stands between
        for entry in journal:
            if isinstance(entry, Move):
                moves.append(entry)
                continue
            if isinstance(entry, Freed | FreedBlocks) and not self.poisons:
                continue
            if moves:
                self._move(moves)
                moves = []
            if isinstance(entry, SwappedOut):
                self._swap_out(entry)
            elif isinstance(entry, Mapped):
                self._map(entry.start, entry.size)
            elif isinstance(entry, Unmapped):
                self._unmap(entry.start, entry.size)
            elif isinstance(entry, Freed):
                self._poison(entry.start, entry.size)
            elif isinstance(entry, FreedBlocks):
                for start in (entry.ids * entry.size).tolist():
                    self._poison(start, entry.size)
        if moves:
            self._move(moves)

    def swap_in(self, entry: SwappedIn, slots: slice | np.ndarray) -> None:
        """Tokens [start, stop) of a swapped sequence go to these slots; the host copy is freed."""
        began = time.perf_counter()
        data, kept_tags = self._host.pop(entry.request)
        cut = slice(entry.start, entry.stop)
        self.view[:, :, _index(slots)] = data[:, :, cut].to(self.data.device)
        self.tags[slots] = kept_tags[cut]
        self._stop_clock(began)

    def forget(self, request_id: int) -> None:
        """Drop the host copy of a request that was turned away."""
        self._host.pop(request_id, None)

    def written_map(self) -> np.ndarray:
        """Tags int64 [slots] as the tensors show them: POISONED where every K and V is NaN.

        Raises AssertionError where a slot is neither all NaN nor free of NaN.
        """
        return tags_shown(self.view, self.tags, np.arange(self.slots))

    def close(self) -> None:
        """Free the tensors and give the budget back. May be called twice."""
        if self._bytes:
            self._budget.give_back(self._bytes)
            self._bytes = 0
            self.data = self.view = torch.empty(0)
            self._pool, self._runs = _NOTHING, _NO_RUNS
            self._host.clear()

    def _size(self) -> int:
        return self.slots * self.slot_bytes

    def _allocate(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """(the pool in memory order, its view [L, 2, slots, H_kv, d_h])"""
        s = self.shape
        head_major = device.type != "cuda"
        inner = (
            (s.num_key_value_heads, self.slots)
            if head_major
            else (self.slots, s.num_key_value_heads)
        )
        fill = float("nan") if self.poisons else 0.0
        try:
            data = torch.full(
                (s.num_hidden_layers, 2, *inner, s.head_dim), fill, dtype=self.dtype, device=device
            )
        except (torch.OutOfMemoryError, RuntimeError) as error:
            raise CapacityError(
                f"the device has no room for a pool of {self.slots:,} slots x "
                f"{self.slot_bytes:,} bytes = {self._bytes / MiB:,.0f} MiB: "
                f"{_free_bytes(device) / MiB:,.0f} MiB are free. Choose fewer slots."
            ) from error
        return data, data.transpose(2, 3) if head_major else data

    def _map(self, start: int, size: int) -> None:
        raise AssertionError(f"slots {start} to {start + size} are mapped in a pool without pages")

    _unmap = _map

    def _move(self, moves: list[Move]) -> None:
        """Copy K and V of these, in order, and the tags. (The tags name the request of the move;
        the keys tell whether the content is right.)"""
        began = time.perf_counter()
        wrong = carry_out(self._pool, self._runs, self._step, self.tags, np.array(moves, np.int64))
        assert wrong < 0, f"{moves[wrong]} leaves the pool of {self.slots} slots"
        if not len(self._runs):
            for move in moves:
                self._copy_in_chunks(move.source, move.target, move.size)
        self._stop_clock(began)

    def _copy_in_chunks(self, source: int, target: int, size: int) -> None:
        """No longer than the shift: torch refuses overlapping copies."""
        shift = abs(target - source)
        offsets = range(0, size, shift)
        for offset in reversed(offsets) if target > source else offsets:
            n = min(shift, size - offset)
            chunk = self.view[:, :, source + offset : source + offset + n]
            self.view[:, :, target + offset : target + offset + n].copy_(chunk)

    def _swap_out(self, entry: SwappedOut) -> None:
        began = time.perf_counter()
        data = self.view[:, :, _index(entry.slots)].to("cpu", copy=True)
        self._host[entry.request] = (data, self.tags[entry.slots].copy())
        self._stop_clock(began)

    def _stop_clock(self, began: float) -> None:
        if self.data.is_cuda:
            torch.cuda.synchronize(self.data.device)
        self.move_seconds += time.perf_counter() - began

    def _poison(self, start: int, size: int) -> None:
        self.view[:, :, start : start + size] = float("nan")
        self.tags[start : start + size] = POISONED


def _runs(view: torch.Tensor) -> np.ndarray:
    """First bytes of the runs of slots that lie side by side in a pool, int64: one for each head's
    K and V, or one of all."""
    layers, values, _, heads, _ = (
        np.arange(n) * stride for n, stride in zip(view.shape, view.stride(), strict=True)
    )
    places = layers[:, None, None] + values[:, None] + heads
    found: list[int] = []
    for place in np.sort(places, axis=None).tolist():
        if not found or place >= found[-1] + view.stride(2):
            found.append(place)
    return np.array(found, np.int64) * view.element_size()


def _free_bytes(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else host_memory_bytes()


def _index(slots: slice | np.ndarray) -> slice | torch.Tensor:
    return slots if isinstance(slots, slice) else torch.from_numpy(np.asarray(slots, np.int64))


def tags_shown(view: torch.Tensor, marks: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """`marks` [n] where view [L, 2, n, H_kv, d_h] holds numbers, POISONED where all is NaN.

    `slots` [n] are the names of the n in the message of the AssertionError.
    """
    nan = view.isnan()
    empty, any_nan = nan, nan
    for dim in (4, 3, 1, 0):
        empty, any_nan = empty.all(dim), any_nan.any(dim)
    torn = (any_nan & ~empty).cpu().numpy()
    assert not torn.any(), f"slots {slots[torn][:8].tolist()} are NaN in part"
    return np.where(empty.cpu().numpy(), POISONED, marks)
