"""What a step or a question shows once it was carried out."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.lesson.pool import Check, Scene
from kvviz.records import Move

Table = dict[str, list[str]]


@dataclass(frozen=True)
class Shown:
    """scenes: maps, from before to after. told: sentences with the numbers. moves: copies that
    lead from the first map to the last. places: slots of one request in the order of its tokens,
    by name, to be joined with lines. ask: slots of a request that was refused, over the last map.
    holes: show the hole histogram. table: columns by name."""

    scenes: tuple[Scene, ...]
    told: tuple[str, ...] = ()
    check: Check | None = None
    moves: tuple[Move, ...] = ()
    places: tuple[str, tuple[int, ...]] | None = None
    ask: int = 0
    holes: bool = False
    table: Table | None = None


def mib(count_bytes: float) -> str:
    return f"{count_bytes / (1 << 20):,.1f} MiB"
