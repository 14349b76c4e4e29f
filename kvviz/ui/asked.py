"""What a viewer wants to know beside the pictures: of a request, of a hole, of the events."""

from __future__ import annotations

from copy import copy
from typing import Any

from kvviz.engine.lanes import Lanes
from kvviz.live.inspect import differences, hole_facts, request_facts
from kvviz.live.log import Filter, newest
from kvviz.live.past import Past
from kvviz.live.published import Published

_EVERY_SECONDS = 0.5  # while the run goes on
_LONGEST = 24  # characters of a filter


class Asked:
    """`select`: a request; `hole`: (lane, slot); `log`: a filter of events, None: no log;
    `pin`: a step to compare with; `run`: the lane whose whole run is wanted as a picture."""

    def __init__(self) -> None:
        self.select: int | None = None
        self.hole: tuple[str, int] | None = None
        self.log: Filter | None = None
        self.pin: int | None = None
        self.run: str | None = None
        self._news = False
        self._at = 0.0

    def copy(self) -> Asked:
        return copy(self)

    def obey(self, words: dict[str, Any]) -> bool:
        """Take what a browser asks for; True when that is news. Nonsense is ignored."""
        before = self._wishes
        if "select" in words:
            self.select, self.hole = _request(words["select"]), None
        if "hole" in words:
            self.select, self.hole = None, _place(words["hole"])
        if "log" in words:
            self.log = _filter(words["log"])
        if "pin" in words:
            self.pin = _request(words["pin"])
        if "run" in words:
            self.run = _word(words["run"]) or None
        if before == self._wishes:
            return False
        self._news = True
        return True

    def due(self, published: Published, now: float) -> bool:
        """Should the next frame bring answers? With each one while the run stands."""
        if not self._news:
            if not any(wish is not None for wish in self._wishes[:4]):
                return False
            moves = published.state == "running" and not published.looking
            if moves and now - self._at < _EVERY_SECONDS:
                return False
        self._news, self._at = False, now
        return True

    @property
    def _wishes(self) -> tuple[Any, ...]:
        return self.select, self.hole, self.log, self.pin, self.run

    def answer(self, lanes: Lanes, past: Past, step: int) -> dict[str, Any]:
        """For the thread that owns the lanes."""
        found: dict[str, Any] = {"selected": None, "hole": None}
        if self.select is not None:
            lanes_of = request_facts(lanes, past, step, self.select)
            found["selected"] = {"request": self.select, "lanes": lanes_of}
        if self.hole is not None and self.hole[0] in lanes.engines:
            found["hole"] = hole_facts(past, step, *self.hole)
        if self.log is not None:
            until = None if step == past.last else step
            found["log"] = newest(lanes, self.log._replace(until=until))
        if self.pin is not None:
            found["pinned"] = differences(past, self.pin, step)
        return found


def _request(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 40 else None


def _place(value: object) -> tuple[str, int] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    lane, slot = value
    known = isinstance(lane, str) and type(slot) is int and 0 <= slot < 1 << 40
    return (lane, slot) if known else None


def _filter(value: object) -> Filter | None:
    if not isinstance(value, dict):
        return None
    kind, verdict = (_word(value.get(name)) for name in ("kind", "verdict"))
    return Filter(kind, verdict, _request(value.get("request")))


def _word(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= _LONGEST else ""
