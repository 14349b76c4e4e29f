"""Rows into columns as they come: eight bytes a number, and every row that is not taken counted."""

from __future__ import annotations

import hashlib
import re
from array import array
from typing import Any

import numpy as np

from kvviz.errors import TraceError
from kvviz.workloads.traces.clock import NO_TIME, Clock
from kvviz.workloads.traces.trace import LISTED, Aside, Prefix, SetAside, Trace

MAX_TOKENS = 10**9
FAILED = "failed request: 0 prompt and 0 output tokens"
NO_ANSWER = "no answer: 0 output tokens"
NO_PROMPT = "no prompt: 0 prompt tokens"
NO_ARRIVAL = "no arrival, though other rows have one"
NO_NUMBER = f"tokens are no whole number from 0 to {MAX_TOKENS:,}"
_THOUSANDS = re.compile(r"\d{1,3}(?:(?P<mark>[,' \u00a0\u202f])\d{3})(?:(?P=mark)\d{3})*")


class Rows:
    """Collects usable rows and those set aside; `trace` makes the result."""

    def __init__(self, format: str, unit: str | None = None, block: int = 0) -> None:
        self.format = format
        self.clock = Clock(unit)
        self.notes: list[str] = []
        self._block = block
        self._arrival = array("d")
        self._prompt = array("q")
        self._output = array("q")
        self._ids = array("q")
        self._offsets = array("q", [0])
        self._missing = array("q")  # lines of rows without an arrival
        self._wrong_ids = 0
        self._reasons: dict[str, int] = {}
        self._listed: list[Aside] = []

    def add(self, line: int, arrival: Any, prompt: Any, output: Any, ids: Any = None) -> None:
        """One row as it stands in the file. `arrival` None or blank: the row has none."""
        name = "prompt"
        try:
            prompt_len = whole(prompt)
            name = "output"
            output_len = whole(output)
        except ValueError:
            self.aside(line, name, NO_NUMBER)
            return
        if not prompt_len or not output_len:
            reason = NO_ANSWER if prompt_len else NO_PROMPT if output_len else FAILED
            self.aside(line, "output" if prompt_len else "prompt", reason)
            return
        if arrival is None or arrival == "":
            self._missing.append(line)
            seconds = float("nan")
        else:
            try:
                seconds = self.clock.seconds(arrival)
            except (ValueError, OverflowError):
                self.aside(line, "arrival", NO_TIME)
                return
        self._arrival.append(seconds)
        self._prompt.append(prompt_len)
        self._output.append(output_len)
        if self._block:
            self._add_ids(prompt_len, ids)

    def aside(self, line: int, name: str, reason: str) -> None:
        self._reasons[reason] = self._reasons.get(reason, 0) + 1
        if len(self._listed) < LISTED:
            self._listed.append(Aside(line, name, reason))

    def trace(self) -> Trace:
        """Raises TraceError if no row can be used."""
        prompt, output = np.array(self._prompt), np.array(self._output)
        times = np.array(self._arrival)
        arrival: np.ndarray | None = times
        prefix = self._prefix()
        keep = np.flatnonzero(~np.isnan(times))
        if not len(prompt):
            self._refuse()
        if not len(keep):
            arrival = None
            self.notes.append("No arrivals in the file: generate them before a replay.")
        elif len(keep) < len(prompt):
            for line in self._missing:
                self.aside(line, "arrival", NO_ARRIVAL)
            prompt, output, arrival = prompt[keep], output[keep], times[keep]
            prefix = prefix and prefix.take(keep)
        reordered = 0
        if arrival is not None:
            reordered = int(np.count_nonzero(np.diff(arrival) < 0))
            if reordered:
                order = np.argsort(arrival, kind="stable")
                prompt, output, arrival = prompt[order], output[order], arrival[order]
                prefix = prefix and prefix.take(order)
                self.notes.append(f"{reordered:,} rows stood out of order and were sorted.")
            if self.clock.wall is not None:
                arrival = arrival - arrival[0]
        self._add_notes(arrival)
        listed = tuple(sorted(self._listed, key=lambda row: row.line))
        aside = SetAside(dict(sorted(self._reasons.items(), key=lambda i: -i[1])), listed)
        return Trace(
            arrival, prompt, output, self.format, self._units(arrival, prefix), prefix, aside,
            reordered, tuple(self.notes),
        )  # fmt: skip

    def _add_notes(self, arrival: np.ndarray | None) -> None:
        if arrival is not None and self.clock.wall is not None:
            self.notes.append("Arrivals are a wall clock and are counted from the first one.")
        elif arrival is not None and self.clock.assumed:
            self.notes.append("The file names no unit of time: arrivals were taken for seconds.")
        if self._wrong_ids:
            self.notes.append(
                f"{self._wrong_ids:,} rows have hash ids that don't fit their prompt (more than "
                f"ceil(prompt / {self._block}), or no list of ids): their lengths are used, "
                "their ids are not."
            )

    def _units(self, arrival: np.ndarray | None, prefix: Prefix | None) -> dict[str, str]:
        units = {"arrival": "none" if arrival is None else self.clock.label, "length": "tokens"}
        if prefix is not None:
            units["hash_id"] = f"{prefix.block} tokens"
        return units

    def _refuse(self) -> None:
        count = sum(self._reasons.values())
        if not count:
            raise TraceError(f"{self.format}: the file has no rows.")
        first = self._listed[0]
        kinds = "; ".join(f"{n:,} x {reason}" for reason, n in self._reasons.items())
        raise TraceError(
            f"{self.format}: no usable row among {count:,}: {kinds}. The first is line "
            f"{first.line:,}, field {first.field}. A request needs a prompt and an output of at "
            "least 1 token."
        )

    def _add_ids(self, prompt: int, ids: Any) -> None:
        if ids:
            found = _ids(ids)
            if found is None or len(found) > -(-prompt // self._block):
                self._wrong_ids += 1
            else:
                self._ids.extend(found)
        self._offsets.append(len(self._ids))

    def _prefix(self) -> Prefix | None:
        if not self._ids:
            return None
        return Prefix(np.array(self._ids), np.array(self._offsets), self._block)


def whole(value: Any) -> int:
    """Tokens from a cell: `472`, `472.0`, `1,234`. Raises ValueError."""
    if type(value) is int:  # not a bool; first, as most files have it
        number = value
    elif isinstance(value, str):
        try:
            number = int(value)
        except ValueError:
            text = value.strip()
            match = _THOUSANDS.fullmatch(text)
            number = int(text.replace(match["mark"], "")) if match else _integral(float(text))
    elif isinstance(value, float):
        number = _integral(value)
    else:
        raise ValueError(NO_NUMBER)
    if not 0 <= number <= MAX_TOKENS:
        raise ValueError(NO_NUMBER)
    return number


def _integral(value: float) -> int:
    if not value.is_integer():
        raise ValueError(NO_NUMBER)
    return int(value)


def _ids(values: Any) -> array | None:
    """Ids as 64-bit numbers; None if they are no list of numbers or words."""
    if not isinstance(values, list):
        return None
    try:
        return array("q", values)
    except (OverflowError, TypeError):
        pass
    if not all(isinstance(v, int | str) for v in values):
        return None
    return array("q", [_id(v) for v in values])


def _id(value: int | str) -> int:
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return value
    digest = hashlib.blake2b(str(value).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)
