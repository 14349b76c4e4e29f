"""The events of all lanes as one table: filtered, cut, and as rows for files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kvviz.engine.lanes import Lanes
from kvviz.live.inspect import cause
from kvviz.records import Event

COLUMNS = ("step", "lane", "kind", "request", "verdict", "need", "free", "largest", "slots", "text")
ROWS_SHOWN = 100


class Filter(NamedTuple):
    """Empty: no limit. `until`: events of steps below it."""

    kind: str = ""
    verdict: str = ""
    request: int | None = None
    until: int | None = None

    def takes(self, event: Event) -> bool:
        return (
            (not self.kind or event.kind == self.kind)
            and (not self.verdict or event.verdict == self.verdict)
            and (self.request is None or event.request == self.request)
            and (self.until is None or event.step < self.until)
        )


def newest(lanes: Lanes, wanted: Filter) -> dict[str, Any]:
    """The newest rows that pass, newest first, how many pass, and the first step that is kept.
    A row: [step whose picture shows it, lane, kind, request, verdict, slots, cause]."""
    rows: list[list[Any]] = []
    total = 0
    for event, lane in _merged(lanes):
        if not wanted.takes(event):
            continue
        total += 1
        if len(rows) < ROWS_SHOWN:
            rows.append(
                [event.step + 1, lane, event.kind, event.request, event.verdict, event.slots,
                 cause(event)]
            )  # fmt: skip
    return {"rows": rows, "total": total, "first": _first(lanes)}


def table(lanes: Lanes) -> list[tuple[Any, ...]]:
    """Every event that is kept, oldest first, in the order of COLUMNS."""
    return [
        (e.step, lane, e.kind, e.request, e.verdict, e.need, e.free, e.largest, e.slots, e.text)
        for e, lane in reversed(list(_merged(lanes)))
    ]


def _merged(lanes: Lanes) -> Iterable[tuple[Event, str]]:
    """Newest first; within a step lane by lane."""
    kept = [
        (event, name)
        for name, engine in lanes.engines.items()
        for event in reversed(engine.recorder.events)
    ]
    kept.sort(key=lambda pair: -pair[0].step)
    return kept


def _first(lanes: Lanes) -> int:
    """The step from which on every lane's events are complete."""
    firsts = [0]
    for engine in lanes.engines.values():
        events = engine.recorder.events
        if len(events) == events.maxlen:
            firsts.append(events[0].step + 1)
    return max(firsts)
