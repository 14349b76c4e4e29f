"""The paged layout's bookkeeping beside a Python list used as a stack: one serving trace, CPU time.

Both serve the trace in turns of some steps, so that a slow minute hits both. The list does what
it must and no more: no verdicts, no sharing, no check for blocks that are given back twice.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from kvviz.caches.paged import PagedLayout
from kvviz.config import RunConfig
from kvviz.records import Request

BLOCK = 16
USE = 0.9
TURN = 100  # steps


class TraceRun(NamedTuple):
    """tokens: those written by decoding. peak: share of the blocks in use at most."""

    tokens: int
    seconds: float
    peak: float

    @property
    def us(self) -> float:
        """Microseconds a token, admission and release included."""
        return self.seconds / self.tokens * 1e6


def serve_in_turns(
    factories: list[Callable[[int], Any]], blocks: int, requests: int
) -> list[TraceRun]:
    """Serve a trace with each: a request is admitted while a tenth of the pool stays free, writes
    its prompt at once and then a token a step, and leaves with prompt + output - 1 slots.

    factories: each makes of `blocks` a layout with admit, append, release, written, take_journal,
    free and append_each. Raises AssertionError when a request does not hold what it wrote.
    """
    trace = _trace(requests)
    served = {at: _serve(make(blocks), blocks * BLOCK, trace) for at, make in enumerate(factories)}
    seconds = [0.0] * len(factories)
    counts = [(0, 0)] * len(factories)
    while served:
        for at, steps in list(served.items()):
            began = time.process_time()
            count = next(steps, None)
            seconds[at] += time.process_time() - began
            if count is None:
                del served[at]
            else:
                counts[at] = count
    return [
        TraceRun(tokens, spent, 1 - lowest / (blocks * BLOCK))
        for (tokens, lowest), spent in zip(counts, seconds, strict=True)
    ]


def _serve(layout: Any, pool: int, trace: list[Request]) -> Iterator[tuple[int, int]]:
    """Tokens written by decoding and the fewest free slots so far, after each turn."""
    lines = Lines(layout) if isinstance(layout, PagedLayout) else None
    leave_free = pool * (1 - USE)
    requests = len(trace)
    running: dict[int, Request] = {}
    leaving: dict[int, list[int]] = defaultdict(list)
    step = tokens = at = 0
    lowest = pool
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
        if step % TURN == 0:
            yield tokens, lowest
    assert layout.free == pool, f"{pool - layout.free} slots were never given back"
    yield tokens, lowest


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
