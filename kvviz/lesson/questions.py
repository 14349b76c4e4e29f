"""Three questions. The answer is not kept anywhere: the layout gives it when it is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvviz.lesson.pool import Bench, Pool
from kvviz.lesson.sequence import ASK, LATE, SIZE, holed
from kvviz.lesson.shown import Shown, mib

# Walls and holes in turn; each fit takes another hole for WANTED slots
_WALL = 512
_HOLES = {"A": 1536, "B": 768, "C": 2048, "D": 1792}
WANTED = 700
_TOKENS = 900
_REQUESTS = 5
_FREE_ANSWERS = ("3,692", "3,632", "3,392", "3,072")


@dataclass(frozen=True)
class Question:
    """`words` may name the setting as {setting}. answer: carries it out; (the right one of
    `answers`, what is shown)."""

    words: str
    setting: str
    settings: tuple[str, ...]
    answers: tuple[str, ...]
    answer: Callable[[Bench, str], tuple[str, Shown]]


def which_hole(bench: Bench, fit: str) -> tuple[str, Shown]:
    """Let a request of 700 choose among four holes."""
    with bench.pool() as pool:
        _walls(pool)
        before = pool.scene("before")
        pool.set({"contiguous.fit": fit})
        holes = dict(zip(_starts(), _HOLES, strict=True))
        pool.admit(LATE, WANTED)
        at = int(pool.slots(LATE)[0])
        name = holes[at]
        left = _HOLES[name] - WANTED
        told = (
            f"{fit.capitalize()} fit puts it at slot {at:,}, into hole {name} of "
            f"{_HOLES[name]:,}; {left:,} are left of it.",
            "Holes, from the left: " + ", ".join(f"{k} {v:,}" for k, v in _HOLES.items()) + ".",
        )
        return name, Shown((before, pool.scene("after")), told, pool.check())


def how_large(bench: Bench, block: str) -> tuple[str, Shown]:
    """Five requests of 900 tokens in blocks of this size: what can the next one have?"""
    with bench.pool("paged", {"paged.block_size": block}) as pool:
        for name in "abcde"[:_REQUESTS]:
            pool.admit(name, _TOKENS)
        before = pool.scene("before")
        largest = pool.layout.admissible
        beyond = pool.ask(largest + 1)
        held = (pool.layout.capacity - largest) // _REQUESTS
        verdict = pool.admit(LATE, largest)
        told = (
            f"{_TOKENS:,} tokens take {held // int(block)} blocks of {block}: {held:,} slots, "
            f"{held - _TOKENS:,} of them tail. Free: {pool.layout.capacity:,} - {_REQUESTS} x "
            f"{held:,} = {largest:,}.",
            f"A request of {largest:,} is {verdict.kind}; of {largest + 1:,} it would be refused: "
            f"{beyond.kind}.",
        )
        return f"{largest:,}", Shown((before, pool.scene("after")), told, pool.check())


def how_dear(bench: Bench, share: str) -> tuple[str, Shown]:
    """A full slide of regions that are written in part."""
    written = SIZE * int(share.removesuffix(" %")) // 100
    settings = {"contiguous.compaction": "on_refusal", "contiguous.compact_by": "slide"}
    with holed(bench, "contiguous", settings, written) as pool:
        before = pool.scene("before")
        verdict = pool.admit(LATE, ASK)
        told = (
            f"Only written slots are copied: {len(pool.moves)} runs of {written:,} = "
            f"{verdict.moved:,} slots, {mib(verdict.moved * pool.slot_bytes)}. Measured just now: "
            f"{pool.move_ms:.2f} ms.",
            f"The room that was reserved moves for nothing. Request {LATE} is {verdict.kind} at "
            f"{pool.slots(LATE)[0]:,}.",
        )
        shown = Shown((before, pool.scene("after")), told, pool.check(), moves=tuple(pool.moves))
        return f"{verdict.moved:,}", shown


def _walls(pool: Pool) -> None:
    for name, size in _HOLES.items():
        pool.admit(name.lower(), _WALL)
        pool.admit(name, size, 0)
    # Next fit goes on from the last allocation: that is to be the last wall
    pool.release("d")
    pool.admit("d", _WALL)
    pool.release(*_HOLES)


def _starts() -> list[int]:
    found, at = [], 0
    for size in _HOLES.values():
        found.append(at + _WALL)
        at += _WALL + size
    return found


QUESTIONS: tuple[Question, ...] = (
    Question(
        f"A request of {WANTED} slots comes. Which hole does the fit below take? The last request "
        "to be placed was d.",
        "Fit",
        ("best", "first", "worst", "next"),
        tuple(_HOLES),
        which_hole,
    ),
    Question(
        f"{_REQUESTS} requests of {_TOKENS} tokens are in a paged pool. How large may the next "
        "request be, with blocks of this size?",
        "Slots in a block ",
        ("64", "16", "256", "1"),
        _FREE_ANSWERS,
        how_large,
    ),
    Question(
        "b, d, f and h have reserved 1,024 slots each, and written only this share of them. How "
        "many slots does a full slide copy to admit i?",
        "Written",
        ("50 %", "25 %", "100 %"),
        ("1,024", "2,048", "4,096", "8,192"),
        how_dear,
    ),
)
