"""Bookkeeping alone, no tensors: what a hole, a block and a token cost. CPU time of one process.

(a) Contiguous: a pool with many holes of which eight are large enough, spread evenly. A searched
fit must grow with the logarithm of the holes; one that looks at each hole grows with them.
(b) Paged: a serving trace through the layout, beside a Python list used as a stack of blocks.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from kvviz.allocators.kinds import ALLOCATORS
from kvviz.bench.linear import LinearAllocator
from kvviz.bench.result import Measured
from kvviz.caches.paged import PagedLayout
from kvviz.config import RunConfig
from kvviz.records import Request

HOLES = (100, 1_000, 10_000)
ABLE = 8  # holes that are large enough
ROUNDS = 7

BLOCK = 16
# blocks -> requests served; enough for each pool to turn over. Fewer where a layout takes one
# token a call, so that the whole stays within a minute.
REQUESTS = {4_096: 10_000, 65_536: 100_000, 1_048_576: 40_000}
USE = 0.9


def bench_allocators() -> list[Measured]:
    return [*_contiguous(), *_paged()]


def _contiguous() -> list[Measured]:
    found = []
    for fit in ("first", "best"):
        makers = {
            "": ALLOCATORS[fit],
            ", each hole looked at": lambda n, f=fit: LinearAllocator(n, f),
        }
        for how, make in makers.items():
            pools = {count: holed(make, count) for count in HOLES}
            times: dict[int, list[float]] = {count: [] for count in HOLES}
            for _ in range(ROUNDS):  # in turns, so that a slow minute hits all
                for count, pool in pools.items():
                    times[count].append(_pair(pool, 2 if how else 40))
            us = {count: statistics.median(t) for count, t in times.items()}
            found += [
                Measured(f"{fit} fit{how}: {count:,} holes, allocate + free", value, "us")
                for count, value in us.items()
            ]
            found.append(
                Measured(
                    f"{fit} fit{how}: 10,000 holes / 100",
                    us[10_000] / us[100],
                    "x",
                    at_most=None if how else 2.0,
                )
            )
    return found


def holed(make: Callable[[int], Any], count: int) -> Any:
    """`count` holes of 8 slots, every (count / ABLE)-th of 32, live regions of 4 in between."""
    every = count // ABLE
    sizes = [32 if at % every == every // 2 and at // every < ABLE else 8 for at in range(count)]
    pool = make(sum(sizes) + 4 * count)
    regions = []
    for size in sizes:
        regions.append(pool.allocate(size))
        pool.allocate(4)
    for region in regions:
        pool.free(region)
    assert len(pool.holes()) == count, f"{len(pool.holes())} holes, not {count}"
    return pool


def _pair(pool: Any, repeats: int) -> float:
    """Microseconds to allocate and free one region: all large holes in turn, then back."""
    began = time.process_time()
    for _ in range(repeats):
        regions = [pool.allocate(20 + at) for at in range(ABLE)]
        for region in regions:
            pool.free(region)
    return (time.process_time() - began) / repeats / ABLE * 1e6


class TraceRun(NamedTuple):
    """tokens: those written by decoding. peak: share of the blocks in use at most."""

    tokens: int
    seconds: float
    peak: float

    @property
    def us(self) -> float:
        """Microseconds a token, admission and release included."""
        return self.seconds / self.tokens * 1e6


def paged_trace(layout_factory: Callable[[int], Any], blocks: int, requests: int) -> TraceRun:
    """Serve a trace: a request is admitted while a tenth of the pool stays free, writes its
    prompt at once and then a token a step, and leaves with prompt + output - 1 slots.

    layout_factory: blocks -> a layout with admit, append, release, written, take_journal, free
    and append_each. Raises AssertionError when a request does not
    hold what it wrote.
    """
    layout = layout_factory(blocks)
    lines = Lines(layout) if isinstance(layout, PagedLayout) else None
    pool, trace = blocks * BLOCK, _trace(requests)
    leave_free = pool * (1 - USE)
    running: dict[int, Request] = {}
    leaving: dict[int, list[int]] = defaultdict(list)
    step = tokens = at = 0
    lowest = pool
    began = time.process_time()
    while at < requests or running:
        while at < requests and layout.free - trace[at].prompt_len >= leave_free:
            request = trace[at]
            assert layout.admit(request, request.prompt_len).admitted, f"{request} found no blocks"
            layout.append(request.id, request.prompt_len)
            running[request.id] = request
            if lines:
                lines.add(request.id)
            leaving[step + request.output_len - 1].append(request.id)
            at += 1
        if lines:
            assert layout.append_each(lines.array), "the pool has room for all of them"
        else:
            layout.append_each(running)
        step += 1
        tokens += len(running)
        lowest = min(lowest, layout.free)
        for request_id in leaving.pop(step, ()):
            assert layout.written(request_id) == running.pop(request_id).life
            if lines:
                lines.drop(request_id)
            layout.release(request_id)
        layout.take_journal()
    seconds = time.process_time() - began
    assert layout.free == pool, f"{pool - layout.free} slots were never given back"
    return TraceRun(tokens, seconds, 1 - lowest / pool)


class Lines:
    """Lines of the address table of the running requests, kept as an array."""

    def __init__(self, layout: PagedLayout) -> None:
        self._row = layout.table.row
        self._ids: list[int] = []
        self._place: dict[int, int] = {}
        self._lines = np.zeros(1 << 17, np.int64)

    @property
    def array(self) -> np.ndarray:
        return self._lines[: len(self._ids)]

    def add(self, request_id: int) -> None:
        self._place[request_id] = len(self._ids)
        self._lines[len(self._ids)] = self._row(request_id)
        self._ids.append(request_id)

    def drop(self, request_id: int) -> None:
        """The last one takes its place."""
        at, last = self._place.pop(request_id), self._ids.pop()
        if last != request_id:
            self._ids[at], self._place[last] = last, at
            self._lines[at] = self._lines[len(self._ids)]


def _trace(requests: int) -> list[Request]:
    """Lognormal prompts of mean 512 and outputs of mean 256, at least 2."""
    rng = np.random.default_rng(1)
    spread = 0.8
    means = np.log([512, 256]) - spread**2 / 2
    lengths = np.clip(rng.lognormal(means, spread, (requests, 2)), 2, 8_192).astype(int).tolist()
    return [Request(i, 0, prompt, output, output) for i, (prompt, output) in enumerate(lengths)]


class StackLayout:
    """The yardstick: a list of free blocks, a list of blocks and a count for each request."""

    def __init__(self, blocks: int) -> None:
        self._stack = list(range(blocks - 1, -1, -1))
        self._table: dict[int, list[int]] = {}
        self._written: dict[int, int] = {}
        self.admitted = True

    @property
    def free(self) -> int:
        return len(self._stack) * BLOCK

    def admit(self, request: Request, tokens: int) -> StackLayout:
        self._table[request.id] = [self._stack.pop() for _ in range(-(-tokens // BLOCK))]
        return self

    def append(self, request_id: int, count: int) -> None:
        self._written[request_id] = count

    def append_each(self, ids: Iterable[int]) -> None:
        written, table, stack = self._written, self._table, self._stack
        for request_id in ids:
            count = written[request_id]
            if count % BLOCK == 0:
                table[request_id].append(stack.pop())
            written[request_id] = count + 1

    def release(self, request_id: int) -> None:
        self._stack.extend(reversed(self._table.pop(request_id)))
        del self._written[request_id]

    def written(self, request_id: int) -> int:
        return self._written[request_id]

    def take_journal(self) -> None:
        """Nothing moves."""


def paged_layout(blocks: int) -> PagedLayout:
    """The paged layout alone, without tensors."""
    config = RunConfig().replace({"memory.slots": blocks * BLOCK, "paged.block_size": BLOCK})
    return PagedLayout(config)


def _paged() -> list[Measured]:
    found, us = [], {}
    for blocks, requests in REQUESTS.items():
        ours = paged_trace(paged_layout, blocks, requests)
        stack = paged_trace(StackLayout, blocks, requests)
        assert ours.tokens == stack.tokens and ours.peak == stack.peak, "two different traces"
        us[blocks] = ours.us
        name = f"{blocks:,} blocks, {requests:,} requests"
        found += [
            Measured(f"paged: {name}, a token", ours.us, "us"),
            Measured(f"list as a stack: {name}, a token", stack.us, "us"),
            Measured(
                f"paged / list as a stack: {blocks:,} blocks",
                ours.us / stack.us,
                "x",
                at_most=1.0 if blocks == 65_536 else None,
            ),
        ]
    growth = us[1_048_576] / us[4_096]
    found.append(Measured("paged: 1,048,576 blocks / 4,096", growth, "x", at_most=2.0))
    return found
