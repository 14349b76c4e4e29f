"""Arrival times as they stand in files, to seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
NO_TIME = "arrival is neither a number nor an ISO 8601 time"
_EPOCH_S = 1e8  # 1973: a smaller number counts from the start of a log
_LONGEST_S = 1e12


class Clock:
    """Seconds of one column. The first value decides whether it is a wall clock (ISO 8601, or an
    epoch), which is counted from that value, and, where no unit is given, what an epoch is
    counted in; a small number without a unit is seconds.

    Fractions finer than a microsecond are cut from ISO stamps. Stamps without a zone are UTC.
    """

    def __init__(self, unit: str | None) -> None:
        self.unit = unit
        self.started = False
        self.wall: datetime | None = None
        self.zoned = False
        self.assumed = unit is None
        self._first = datetime.min
        self._base: int | float = 0
        self._per_second = PER_SECOND[unit or "s"]

    def seconds(self, value: Any) -> float:
        """Raises ValueError for what is no time."""
        if not self.started:
            return self._start(value)
        if self.unit is None:
            return self._since(value)
        return self._within((_number(value) - self._base) / self._per_second)

    @property
    def label(self) -> str:
        """The unit as found, for people."""
        if self.wall is not None:
            how = "ISO 8601" if self.unit is None else f"epoch, {self.unit}"
            return f"wall clock ({how})"
        return self.unit or "s"

    def _start(self, value: Any) -> float:
        try:
            number = _number(value)
        except ValueError:
            self._first = _stamp(value)
            self.zoned = self._first.tzinfo is not None
            self.wall = self._first if self.zoned else self._first.replace(tzinfo=UTC)
            self.unit = None
            self.assumed = False
        else:
            self._choose_unit(number)
        self.started = True
        return self.seconds(value)

    def _choose_unit(self, number: int | float) -> None:
        self._within(float(number) / PER_SECOND["ns"])
        if self.unit is None:
            size = abs(number)
            self.unit = "ns" if size >= 1e17 else "us" if size >= 1e14 else "ms"
            if size < 1e11:
                self.unit = "s"
        self._per_second = PER_SECOND[self.unit]
        if number / self._per_second >= _EPOCH_S:
            self._base = number
            at = min(number / self._per_second, 253_402_300_799)
            self.wall = datetime.fromtimestamp(at, UTC)

    def _since(self, value: Any) -> float:
        stamp = _stamp(value)
        if (stamp.tzinfo is not None) is self.zoned:
            return (stamp - self._first).total_seconds()
        assert self.wall is not None
        aware = stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)
        return (aware - self.wall).total_seconds()

    def _within(self, seconds: float) -> float:
        if not -_LONGEST_S < seconds < _LONGEST_S:  # also catches nan
            raise ValueError(NO_TIME)
        return seconds


def _stamp(value: Any) -> datetime:
    if not isinstance(value, str):
        raise ValueError(NO_TIME)
    return datetime.fromisoformat(value.strip())


def _number(value: Any) -> int | float:
    if type(value) is int or type(value) is float:
        return value
    if isinstance(value, str):
        try:
            return int(value)  # exact, where a float would lose the nanoseconds of an epoch
        except ValueError:
            return float(value)
    raise ValueError(NO_TIME)
