"""The one sequence that the lesson follows: eight requests fill the pool, every second one
finishes, and one of twice their size arrives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvviz.lesson.pool import Bench, Pool

NAMES = "abcdefgh"
SIZE = 1024
GONE = "aceg"
ASK = 2048
TURN = 64  # tokens
LATE = "i"  # the request that arrives late


def filled(
    bench: Bench,
    kind: str = "contiguous",
    changes: Mapping[str, Any] | None = None,
    written: int = SIZE,
) -> Pool:
    """a to h, 1,024 slots each, of which `written` hold tokens."""
    pool = bench.pool(kind, changes)
    for name in NAMES:
        pool.admit(name, SIZE, written)
    return pool


def holed(
    bench: Bench,
    kind: str = "contiguous",
    changes: Mapping[str, Any] | None = None,
    written: int = SIZE,
) -> Pool:
    """The same after a, c, e and g have finished."""
    pool = filled(bench, kind, changes, written)
    pool.release(*GONE)
    return pool


def in_turns(bench: Bench, block: int) -> Pool:
    """a to h in blocks, all at once: each writes `TURN` tokens in its turn, as prompts that are
    read in chunks do. Then a, c, e and g finish."""
    pool = bench.pool("paged", {"paged.block_size": block})
    for name in NAMES:
        pool.admit(name, SIZE, 0)
    for _ in range(SIZE // TURN):
        for name in NAMES:
            pool.append(name, TURN)
    pool.release(*GONE)
    return pool
