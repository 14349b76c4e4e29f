"""A small pool for the lesson: a real layout over a real store, and what was written into it.

Every token's K and V are drawn once and kept beside the pool, so that after any move they can be
read back and compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from kvviz.caches.budget import PoolBudget
from kvviz.caches.layouts import LAYOUTS
from kvviz.caches.store import POISONED, KVStore, tags
from kvviz.config import RunConfig
from kvviz.records import Counters, Move, Request, Snapshot, Verdict
from kvviz.shapes import ModelShape

SLOTS = 8192


class Check(NamedTuple):
    """What the tensors say. slots: compared; equal: K and V are as they were written; mapped: the
    slots that hold numbers are those that the layout calls written, token for token."""

    slots: int
    equal: bool
    mapped: bool


@dataclass(frozen=True)
class Scene:
    """The pool at one moment. names: owners in words."""

    label: str
    snapshot: Snapshot
    names: dict[int, str]


@dataclass(frozen=True)
class Bench:
    """What pools are made from: the model's shape, its device, and the bytes that may be taken."""

    shape: ModelShape
    device: torch.device
    budget: PoolBudget

    def pool(self, kind: str = "contiguous", changes: Mapping[str, Any] | None = None) -> Pool:
        """An empty pool of `SLOTS` slots. Raises CapacityError when the budget has no room."""
        return Pool(kind, self, changes or {})


class Pool:
    """Use it with `with`: the tensors go back at the end."""

    def __init__(self, kind: str, bench: Bench, changes: Mapping[str, Any]) -> None:
        self._config = RunConfig().replace({"memory.slots": SLOTS, **changes})
        self.layout = LAYOUTS[kind](self._config)
        self.store = KVStore(bench.shape, SLOTS, bench.device, budget=bench.budget, poison=True)
        self.moves: list[Move] = []
        self._ids: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._kept: dict[int, list[torch.Tensor]] = {}

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    @property
    def slot_bytes(self) -> int:
        return self.store.slot_bytes

    @property
    def move_ms(self) -> float:
        """Measured: what the moves so far took."""
        return self.store.move_seconds * 1e3

    @property
    def live(self) -> list[str]:
        return list(self._ids)

    def set(self, changes: Mapping[str, Any]) -> None:
        """Change settings that need no restart."""
        self._config = self._config.replace(changes)
        self.layout.reconfigure(self._config)

    def ask(self, size: int) -> Verdict:
        """What a request of `size` slots would get; changes nothing."""
        return self.layout.question(self._request(size), size)

    def admit(self, name: str, size: int, written: int | None = None) -> Verdict:
        """Give `size` slots to a request and write its tokens, by default all of them."""
        request = self._request(size)
        verdict = self.layout.admit(request, size)
        if verdict.admitted:
            self._ids[name] = request.id
            self._names[request.id] = name
            self._kept[request.id] = []
            self.append(name, size if written is None else written)
        return verdict

    def append(self, name: str, count: int) -> Verdict:
        """Write `count` more tokens of a request, with any values."""
        id = self._ids[name]
        first = self.layout.written(id)
        verdict = self.layout.append(id, count)
        self._carry_out()
        if verdict.admitted and count:
            self._write(id, first, count)
        return verdict

    def release(self, *names: str) -> None:
        for name in names:
            id = self._ids.pop(name)
            del self._kept[id]
            self.layout.release(id)
        self._carry_out()

    def slots(self, name: str) -> np.ndarray:
        """int64 [tokens]: where the tokens of a request lie, in their order."""
        return self._slots(self._ids[name])

    def index(self, name: str) -> torch.Tensor:
        """The same on the device, to gather with."""
        return torch.from_numpy(self.slots(name)).to(self.store.data.device)

    def table_bytes(self) -> int:
        """Bytes of the address table's entries in use, four each."""
        piece = self.layout.table.piece
        return sum(-(-self.layout.written(id) // piece) for id in self._ids.values()) * 4

    def check(self) -> Check:
        """Read every written slot back from the tensors, and rebuild the map from them."""
        self.layout.check()
        expected = np.full(SLOTS, POISONED, np.int64)
        count, equal = 0, True
        for id, parts in self._kept.items():
            where, first = self._slots(id), 0
            expected[where] = tags(id, np.arange(len(where)))
            for part in parts:
                found = self.store.view[:, :, where[first : first + part.shape[2]]]
                equal = equal and bool((found == part).all())
                first += part.shape[2]
            count += first
        return Check(count, equal, bool((self.store.written_map() == expected).all()))

    def scene(self, label: str) -> Scene:
        return Scene(label, self.snapshot(), dict(self._names))

    def snapshot(self) -> Snapshot:
        layout, ids = self.layout, list(self._ids.values())
        used = np.array([layout.written(id) for id in ids], np.int64)
        held = np.array([layout.held(id) for id in ids], np.int64)
        nothing = np.zeros(0, np.int64)
        return Snapshot(
            step=0,
            seconds=0.0,
            capacity=SLOTS,
            grain=layout.grain,
            paged=layout.paged,
            slot_bytes=self.slot_bytes,
            admissible=layout.admissible,
            columns=layout.columns(),
            seq_id=np.array(ids, np.int64),
            seq_used=used,
            seq_life=held,
            seq_held=held,
            seq_prompt=used,
            seq_since=np.zeros(len(ids), np.int64),
            waiting_id=nothing,
            waiting_need=nothing,
            head=None,
            counters=Counters(),
        )

    def _request(self, size: int) -> Request:
        id = len(self._names)
        return Request(id, 0, size, 1, 1, text=id)

    def _slots(self, id: int) -> np.ndarray:
        where = self.layout.slots(id)
        if isinstance(where, slice):
            return np.arange(where.start, where.stop)
        return where.astype(np.int64)

    def _write(self, id: int, first: int, count: int) -> None:
        where = self._slots(id)[first:]
        s = self.store.shape
        rng = np.random.default_rng((id, first))
        drawn = rng.random(
            (s.num_hidden_layers, 2, count, s.num_key_value_heads, s.head_dim), np.float32
        )
        values = self.store.data.new_tensor(drawn)
        self.store.view[:, :, where] = values
        self.store.tag(where, np.full(count, id), np.arange(first, first + count))
        self._kept[id].append(values)

    def _carry_out(self) -> None:
        journal = self.layout.take_journal()
        self.moves += [entry for entry in journal if isinstance(entry, Move)]
        self.store.apply(journal)
