"""What a scheduler counts, and the events it tells."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from kvviz.records import REFUSALS, WAITING_SHOWN, Event, Verdict


@dataclass
class Ledger:
    """Totals since the start, and the events of the step under way."""

    step: int = 0
    arrived: int = 0
    admitted: int = 0
    preempted: int = 0
    dropped: int = 0
    recomputed: int = 0
    slots_moved: int = 0
    cached: int = 0
    copied: int = 0
    swapped: int = 0
    bypassed: int = 0
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REFUSALS, 0))
    turned_away: deque[int] = field(default_factory=lambda: deque(maxlen=WAITING_SHOWN))
    events: list[Event] = field(default_factory=list)

    def note(
        self,
        kind: str,
        request: int,
        verdict: Verdict | None = None,
        *,
        slots: int = 0,
        text: str = "",
    ) -> None:
        v = ("", 0, 0, 0) if verdict is None else verdict[:4]
        self.events.append(Event(self.step, kind, request, *v, slots, text))

    def take_events(self) -> list[Event]:
        events, self.events = self.events, []
        return events
