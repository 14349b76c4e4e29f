"""The memory of a scenario: its layout, freshly built, and the numbers told of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from kvviz.caches.layout import Layout
from kvviz.caches.layouts import LAYOUTS
from kvviz.errors import KvvizError, ScenarioError
from kvviz.metrics import fragmentation_index, unusable_index
from kvviz.records import ADMITTED, HOLE, Columns, Move, Region, Request, Verdict
from kvviz.scenario.parts import Scenario


@dataclass(frozen=True)
class Frame:
    """The memory after one operation, or after one step, for a picture.

    names: what to call the owners of rows. ask: slots that were refused, 0 when nothing was;
    note: the verdict, or what else is to be said.
    """

    label: str
    columns: Columns
    names: dict[int, str]
    ask: int = 0
    note: str = ""


def build(scenario: Scenario) -> Layout:
    """Raises ScenarioError when the layout refuses its settings."""
    try:
        return LAYOUTS[scenario.layout](scenario.config)
    except KvvizError as error:
        raise ScenarioError(str(error), field="layout") from error


def start_check(scenario: Scenario, layout: Layout) -> dict[str, Any] | None:
    """Can the pool hold one request of max_len? None when the file does not ask."""
    if not scenario.max_len:
        return None
    request = life_of(0, scenario.max_len)
    verdict = layout.question(request, scenario.max_len)
    single = getattr(layout, "single", False)
    longest = layout.grain if single else layout.free
    where = f"a buffer of {longest:,}" if single else f"the pool of {longest:,}"
    # Buffers do not add up: what outgrows one is served in no part of it by the others
    room = layout.free if verdict.admitted else longest
    return {
        "ok": verdict.admitted,
        "max_len": scenario.max_len,
        "pool": layout.free,
        "suggested_max_len": min(scenario.max_len, longest),
        "concurrency": round(room / verdict.need, 4),
        "reason": ""
        if verdict.admitted
        else f"max_len {scenario.max_len:,} is more than {where} slots: a "
        f"request that long could never be served. Lower max_len to {longest:,}, or give "
        "the pool more memory.",
    }


def life_of(id: int, slots: int) -> Request:
    """A request that needs exactly so many slots, whatever the reservation."""
    return Request(id, 0, slots, 1, 1, text=id)


def first_slot(layout: Layout, request: int) -> int:
    return int(layout.table.array[layout.table.row(request), 0])


def hole_sizes(columns: Columns, paged: bool, single: bool = False) -> np.ndarray:
    """Free memory in the pieces that a request can get: holes, or, where any free unit will do,
    all of it; `single`: one unit each."""
    free = columns.owner == HOLE
    if single:
        return columns.size[free].astype(np.int64)
    if paged:
        total = int(columns.size[free].sum())
        return np.array([total] if total else [], np.int64)
    first = free & ~np.concatenate([[False], free[:-1]])
    return np.bincount(
        np.cumsum(first)[free] - 1, weights=columns.size[free], minlength=int(first.sum())
    ).astype(np.int64)


def figures(layout: Layout, columns: Columns, whole: int, ask: int) -> dict[str, Any]:
    """What is told of the memory. ask: the size that the two indices are for, 0 for none."""
    sizes = hole_sizes(columns, layout.paged, getattr(layout, "single", False))
    need = -(-ask // layout.grain) * layout.grain if layout.paged else ask
    used = whole - layout.free
    largest = int(sizes.max(initial=0))
    return {
        "free": layout.free,
        "used": used,
        "written": int(columns.used.sum()),
        "usage": round(used / whole, 6) if whole else None,
        "holes": len(sizes),
        "largest_hole": min(largest, layout.admissible) if layout.paged else largest,
        "admissible": layout.admissible,
        "unusable_index": round(unusable_index(sizes, need), 6) if ask else None,
        "fragmentation_index": _rounded(fragmentation_index(sizes, need)) if ask else None,
    }


def place(layout: Layout) -> int | None:
    """Give what was appended its slots, where a layout waits with that until all is known. In how
    many parts, each a forward pass; None: the layout does not wait."""
    give = getattr(layout, "place", None)
    return None if give is None else len(give())


def moves(layout: Layout) -> int:
    """How many runs of slots were copied since the last question; empties the journal."""
    return sum(isinstance(entry, Move) for entry in layout.take_journal())


def why(verdict: Verdict, layout: Layout) -> str:
    """The numbers that decided a refusal, in words; empty when there is none."""
    if verdict.kind == ADMITTED:
        return ""
    largest = "the largest hole is" if not layout.paged else "the largest request that fits is"
    return (
        f"needs {verdict.need:,} of {layout.capacity:,} slots; {verdict.free:,} are free, "
        f"{largest} {verdict.largest:,}"
    )


def runs(units: np.ndarray) -> Iterator[Region]:
    """Runs of neighbours in ascending numbers."""
    if not len(units):
        return
    breaks = np.flatnonzero(np.diff(units) != 1) + 1
    for part in np.split(units, breaks):
        yield Region(int(part[0]), len(part))


def spelled(layout: Layout, request: int) -> str:
    """Where a request lies: 'slots 0-387', 'blocks 0-24, 30'; long lists are cut, and say so."""
    slots = layout.slots(request)
    if isinstance(slots, slice):
        start = slots.start or 0
        return _span("slots", [Region(start, slots.stop - start)])
    units = np.unique(slots // layout.grain)
    return _span("blocks" if layout.grain > 1 or layout.paged else "slots", list(runs(units)))


def _span(word: str, found: list[Region]) -> str:
    shown = [f"{r.start}-{r.end - 1}" if r.size > 1 else f"{r.start}" for r in found[:8]]
    more = [f"and {len(found) - 8} runs more"] if len(found) > 8 else []
    return f"{word} {', '.join(shown + more)}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
