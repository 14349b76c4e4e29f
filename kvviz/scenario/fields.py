"""A reader of one JSON value and what lies in it, that knows where it is.

Every complaint names the line, the path, and what was expected there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn

from kvviz.errors import ScenarioError
from kvviz.scenario.text import Path, line_of, name_of


class Field:
    """A value of the file, at a path."""

    def __init__(self, text: str, value: Any, path: Path = ()) -> None:
        self.value = value
        self._text, self._path = text, path

    def fail(self, what: str) -> NoReturn:
        raise ScenarioError(what, line=line_of(self._text, self._path), field=name_of(self._path))

    def expected(self, what: str) -> NoReturn:
        self.fail(f"{what} was expected, not {_shown(self.value)}.")

    def keys(self, known: tuple[str, ...], what: str) -> None:
        """Refuse anything but an object with these keys."""
        if not isinstance(self.value, dict):
            self.expected(f"{what}, an object {{...}},")
        for key in self.value:
            if key not in known:
                Field(self._text, None, (*self._path, key)).fail(
                    f"unknown key. Known here: {', '.join(known)}."
                )

    def has(self, key: str) -> bool:
        return key in self.value

    def at(self, key: str | int) -> Field:
        """What lies at a key, or a place. A key that is missing is an error."""
        if isinstance(key, str) and key not in self.value:
            self.fail(f"{key!r} is missing.")
        return Field(self._text, self.value[key], (*self._path, key))

    def items(self, most: int) -> Iterator[Field]:
        if not isinstance(self.value, list):
            self.expected("a list [...]")
        if len(self.value) > most:
            self.fail(f"{len(self.value):,} entries, and {most:,} are read at most.")
        for index in range(len(self.value)):
            yield self.at(index)

    def whole(self, low: int, high: int) -> int:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.expected(f"a whole number from {low:,} to {high:,}")
        return value

    def number(self) -> float:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.expected("a number")
        if not math.isfinite(value):
            self.expected("a number")
        return float(value)

    def truth(self) -> bool:
        if not isinstance(self.value, bool):
            self.expected("true or false")
        return self.value

    def line(self, longest: int, *, empty: bool = False) -> str:
        """A piece of text without line breaks and control signs."""
        value = self.value
        fine = isinstance(value, str) and value.isprintable() and len(value) <= longest
        if not fine or not (value or empty):
            self.expected(f"text of 1 to {longest} printable signs")
        return value

    def choice(self, known: tuple[str, ...]) -> str:
        if not isinstance(self.value, str) or self.value not in known:
            self.expected(f"one of {', '.join(known)}")
        return self.value


def _shown(value: Any) -> str:
    """A value in a message: short, and in JSON's words."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN or a number beyond all bounds"
    words = json.dumps(value)
    return words if len(words) <= 60 else f"{words[:57]}..."
