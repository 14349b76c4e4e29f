"""What it costs to close the holes: a contiguous lane on tensors, beside a plain copy.

The pool is filled with written regions and every other one is freed. A full slide brings the rest
together; `fewest` opens one hole of a quarter of what is free. The floor is the time that one plain
copy of as many bytes takes in the same run, in a pool as large. A move is a copy for each head's K
and V: where these are small, what the calls cost is beyond the floor.
"""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import numpy as np
import torch

from kvviz.bench.floors import rate
from kvviz.bench.result import Measured
from kvviz.caches.budget import PoolBudget
from kvviz.caches.contiguous import ContiguousLayout
from kvviz.caches.store import KVStore
from kvviz.config import RunConfig
from kvviz.records import Move, Request
from kvviz.shapes import ModelShape

SLOTS = (8_192, 65_536)
ROUNDS = 15
GOAL = 0.8  # of a plain copy's bytes a second
WAYS = {"full slide": "slide", "fewest slots": "fewest"}


class Compacted(NamedTuple):
    """plan, copy: seconds to decide on the moves, and to carry them out. slots: copied, in so many
    moves, each of `runs` runs of bytes: one for each head's K and V."""

    plan: float
    copy: float
    slots: int
    moves: int
    runs: int


def bench_compaction() -> list[Measured]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [figure for slots in SLOTS for way in WAYS for figure in _measure(slots, way)]
    finally:
        torch.set_num_threads(threads)


def compact(slots: int, way: str) -> tuple[Compacted, KVStore]:
    """Close the holes of a new pool in this way. The store is the caller's to close."""
    config = RunConfig().replace(
        {
            "memory.slots": slots,
            "contiguous.compaction": "on_refusal",
            "contiguous.compact_by": WAYS[way],
            "contiguous.reservation": "oracle",
        }
    )
    layout = ContiguousLayout(config)
    store = KVStore(
        ModelShape(), slots, torch.device("cpu"), budget=PoolBudget.of_host(), poison=False
    )
    _fill(layout, store)
    began = time.process_time()
    if way == "full slide":
        moved = layout.compact()
    else:
        need = max(layout.admissible + 1, layout.free // 4)
        moved = layout.admit(Request(1 << 20, 0, need, 1, 1), need).moved
    planned = time.process_time()
    journal = layout.take_journal()
    store.apply(journal)
    spent = time.process_time() - planned
    moves = sum(isinstance(entry, Move) for entry in journal)
    runs = 2 * store.shape.num_hidden_layers * store.shape.num_key_value_heads
    return Compacted(planned - began, spent, moved, moves, runs), store


def _measure(slots: int, way: str) -> list[Measured]:
    runs, copies = [], []
    for _ in range(ROUNDS):  # in turns, and compared by turns: a slow minute hits both
        run, store = compact(slots, way)
        runs.append(run)
        count_bytes = run.slots * store.slot_bytes
        pool_bytes = store.nbytes
        store.close()
        copies.append(_plain_copy(count_bytes, pool_bytes))
    plan, copy = (statistics.median(times) * 1e3 for times in list(zip(*runs, strict=True))[:2])
    bandwidth = count_bytes / statistics.median(copies)
    share = statistics.median([plain / run.copy for run, plain in zip(runs, copies, strict=True)])
    floor = count_bytes / bandwidth * 1e3
    name = f"{way}, {slots:,} slots"
    pieces = run.moves * run.runs
    floor_of = (
        f"{count_bytes / 1e6:,.1f} MB copied at {rate(bandwidth)} "
        f"(in {pieces:,} pieces of {count_bytes / pieces / 1e3:,.0f} KB)"
    )
    return [
        Measured(f"{name}: moves decided", plan, "ms"),
        Measured(f"{name}: moves carried out", copy, "ms", floor=floor, floor_of=floor_of),
        Measured(f"{name}: moved", count_bytes / 1e6, "MB"),
        Measured(f"{name}: moved a second", count_bytes / 1e6 / copy, "GB/s"),
        Measured(f"{name}: of a plain copy's bytes a second", share, "x", GOAL),
    ]


def _plain_copy(count_bytes: int, pool_bytes: int) -> float:
    """Seconds for a copy in a pool as large, written as a whole just before: what lies in the
    cache is then the same."""
    count, half = count_bytes // 4, pool_bytes // 8
    assert count <= half, f"{count_bytes:,} bytes are more than half of {pool_bytes:,}"
    pool = torch.ones(2 * half)
    began = time.process_time()
    pool[:count].copy_(pool[half : half + count])
    return time.process_time() - began


def _fill(layout: ContiguousLayout, store: KVStore) -> None:
    """Written regions side by side, sizes lognormal around a 64th of the pool; every other one
    leaves."""
    rng = np.random.default_rng(1)
    mean = layout.capacity / 64
    ids: list[int] = []
    while layout.free > mean:
        size = int(min(max(16, rng.lognormal(np.log(mean) - 0.18, 0.6)), layout.free))
        request = Request(len(ids), 0, size, 1, 1)
        assert layout.admit(request, size).admitted, f"{size} slots found no place"
        layout.append(request.id, size)
        mine = layout.slots(request.id)
        store.view[:, :, mine] = float(request.id)
        store.tag(np.arange(mine.start, mine.stop), np.full(size, request.id), np.arange(size))
        ids.append(request.id)
    for request_id in ids[::2]:
        layout.release(request_id)
    layout.take_journal()
