"""Bookkeeping alone, no tensors: what a hole, a block and a token cost. CPU time of one process.

(a) Contiguous: a pool with many holes of which eight are large enough, spread evenly. A searched
fit must grow with the logarithm of the holes; one that looks at each hole grows with them.
(b) Paged: a serving trace through the layout, beside a Python list used as a stack of blocks.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kvviz.allocators.kinds import ALLOCATORS
from kvviz.bench.blocks import StackLayout, paged_layout, serve_in_turns
from kvviz.bench.floors import call_overhead, copy_bandwidth, rate
from kvviz.bench.linear import LinearAllocator
from kvviz.bench.result import Measured

HOLES = (100, 1_000, 10_000)
ABLE = 8  # holes that are large enough
ROUNDS = 7

# blocks -> requests served; enough for each pool to turn over. Fewer where a layout takes one
# token a call, so that the whole stays within a minute.
REQUESTS = {4_096: 10_000, 65_536: 100_000, 1_048_576: 40_000}


def bench_allocators() -> list[Measured]:
    return [*_contiguous(), *_paged()]


def _contiguous() -> list[Measured]:
    found = []
    call = call_overhead() * 1e6
    floor_of = f"two calls of {call:.3f} us"
    for fit in ("first", "best"):
        makers: dict[str, Callable[[int], Any]] = {
            "": ALLOCATORS[fit],
            ", each hole looked at": partial(LinearAllocator, fit=fit),
        }
        for how, make in makers.items():
            pools = {count: holed(make, count) for count in HOLES}
            times: dict[int, list[float]] = {count: [] for count in HOLES}
            for _ in range(ROUNDS):  # in turns, so that a slow minute hits all
                for count, pool in pools.items():
                    times[count].append(_pair(pool, 2 if how else 40))
            us = {count: statistics.median(t) for count, t in times.items()}
            found += [
                Measured(
                    f"{fit} fit{how}: {count:,} holes, allocate + free",
                    value,
                    "us",
                    floor=2 * call,
                    floor_of=floor_of,
                )
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


def _paged() -> list[Measured]:
    found, us = [], {}
    bandwidth = copy_bandwidth(1 << 14)  # a count of the slots left, for each sequence
    floor = 8 / bandwidth * 1e6
    floor_of = f"a count of 8 bytes read and written at {rate(bandwidth)}"
    for blocks, requests in REQUESTS.items():
        ours, stack = serve_in_turns([paged_layout, StackLayout], blocks, requests)
        assert ours.tokens == stack.tokens and ours.peak == stack.peak, "two different traces"
        us[blocks] = ours.us
        name = f"{blocks:,} blocks, {requests:,} requests"
        found += [
            Measured(f"paged: {name}, a token", ours.us, "us", floor=floor, floor_of=floor_of),
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
