"""Steps 6 to 8: what compaction costs, what paging does instead, and what that costs."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from kvviz.lesson.pool import Bench, Pool
from kvviz.lesson.sequence import ASK, LATE, holed, in_turns
from kvviz.lesson.shown import Shown, Table, mib
from kvviz.views.number import percent

WAYS = {"full slide": "slide", "fewest slots": "fewest"}
BLOCK = 16
TURNS = ("in turns of 64 tokens", "one after another")
BLOCKS = ("16", "64", "256")
_REPEATS = 5


def compact(bench: Bench, choice: str) -> Shown:
    """Make room by moving, then admit; K and V are read back from their new places."""
    with holed(bench) as pool:
        before = pool.scene("before")
        pool.set({"contiguous.compaction": "on_refusal", "contiguous.compact_by": WAYS[choice]})
        verdict = pool.admit(LATE, ASK)
        check = pool.check()
        bytes_moved = verdict.moved * pool.slot_bytes
        runs = len(pool.moves)
        return Shown(
            (before, pool.scene("after")),
            (
                f"{choice.capitalize()}: {runs} {'run' if runs == 1 else 'runs'}, "
                f"{verdict.moved:,} slots x {pool.slot_bytes:,} bytes = {mib(bytes_moved)}, read "
                f"and written. Measured just now: {pool.move_ms:.2f} ms.",
                f"Request {LATE} is {verdict.kind} at slot {pool.slots(LATE)[0]:,}. F = "
                f"{pool.layout.free:,}.",
            ),
            check,
            tuple(pool.moves),
        )


def page(bench: Bench, choice: str) -> Shown:
    """The same sequence in blocks: admitted at once, with no move."""
    with _paged(bench, choice) as pool:
        before = pool.scene("before")
        verdict = pool.admit(LATE, ASK)
        slots = pool.slots(LATE)
        breaks = int((np.diff(slots) != 1).sum())
        return Shown(
            (before, pool.scene("after")),
            (
                f"In blocks of {BLOCK}: {verdict.need:,} slots are {ASK // BLOCK} blocks, "
                f"{verdict.free // BLOCK} are free: {verdict.kind}. {len(pool.moves)} moves.",
                f"Request {LATE} lies in {breaks + 1:,} pieces, and does not notice: its block "
                "table puts them in order.",
            ),
            pool.check(),
            places=(LATE, tuple(slots.tolist())),
        )


def _paged(bench: Bench, choice: str) -> Pool:
    if choice == TURNS[0]:
        return in_turns(bench, BLOCK)
    return holed(bench, "paged", {"paged.block_size": BLOCK})


def costs(bench: Bench, choice: str) -> Shown:
    """One more token for every request, in blocks of the size chosen: tails, tables, lookups."""
    table: Table = {
        "slots in a block": [],
        "tail slots": [],
        "of the slots held": [],
        "block table": [],
        "of the pool": [],
        "lookups a read of i": [],
    }
    shown: Shown | None = None
    for size in BLOCKS:
        with holed(bench, "paged", {"paged.block_size": size}) as pool:
            pool.admit(LATE, ASK)
            before = pool.scene("before")
            for name in pool.live:
                pool.append(name, 1)
            _add(table, pool, int(size))
            if size == choice:
                gathered, straight = _read_ms(pool)
                shown = Shown(
                    (before, pool.scene("after")),
                    (
                        f"Each of the {len(pool.live)} requests wrote one more token, and took a "
                        f"whole block of {choice} for it: {_tail(pool):,} slots are tails.",
                        f"To read the keys of {LATE} in one layer and add them up took "
                        f"{gathered:.3f} ms through the block table, and {straight:.3f} ms for as "
                        f"many in one piece. Measured just "
                        f"now, the best of {_REPEATS}. A paged attention kernel looks the blocks "
                        "up as it goes and gathers nothing first.",
                    ),
                    pool.check(),
                    table=table,
                )
    assert shown is not None, f"{choice} is none of {', '.join(BLOCKS)}"
    return shown


def _add(table: Table, pool: Pool, size: int) -> None:
    held = pool.layout.capacity - pool.layout.free
    entries = pool.table_bytes()
    cells = (
        str(size),
        f"{_tail(pool):,}",
        percent(_tail(pool) / held),
        f"{entries:,} bytes",
        f"{100 * entries / pool.store.nbytes:.4f} %",
        f"{-(-len(pool.slots(LATE)) // size):,}",
    )
    for column, cell in zip(table.values(), cells, strict=True):
        column.append(cell)


def _tail(pool: Pool) -> int:
    c = pool.layout.columns()
    return int((c.size - c.used)[c.owner >= 0].sum())


def _read_ms(pool: Pool) -> tuple[float, float]:
    """Copies of the keys of i in layer 0: (gathered by slot, from one piece), in ms."""
    keys = pool.store.view[0, 0]
    index = pool.index(LATE)
    piece = slice(0, len(index))
    return _best(lambda: keys[index].sum().item()), _best(lambda: keys[piece].sum().item())


def _best(read: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        read()
        times.append(time.perf_counter() - began)
    return min(times) * 1e3
