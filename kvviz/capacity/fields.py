"""A config.json, read with suspicion: every value is checked and every error names its field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvviz.errors import ConfigError

MAX_TEXT = 4 << 20  # characters of JSON
MAX_SIZE = 1 << 24  # heads, widths, ranks
MAX_LAYERS = 4096
MAX_TOKENS = 1 << 40
INNER = ("text_config", "llm_config", "language_config", "thinker_config")

_REQUIRED = object()


def parse_config(text: str, what: str = "config.json") -> dict[str, Any]:
    """A JSON object as a dict. Raises ConfigError for anything else."""
    if len(text) > MAX_TEXT:
        raise ConfigError(
            f"{what} has {len(text):,} characters; up to {MAX_TEXT:,} are read. Paste the model's "
            "config.json and nothing else."
        )
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{what} is no JSON ({type(error).__name__}: {str(error)[:120]}). Paste the whole "
            "file, from { to }."
        ) from error
    if not isinstance(raw, dict):
        raise ConfigError(f"{what} holds a {type(raw).__name__}; a JSON object was expected.")
    return raw


class Fields:
    """The values of one object. null counts as missing; `where` is its place in the file."""

    def __init__(self, raw: Mapping[str, Any], where: str = "") -> None:
        if not isinstance(raw, Mapping):
            raise ConfigError(
                f"{where or 'the config'}: an object was expected, not {_shown(raw)}."
            )
        self.raw = raw
        self.where = where

    def has(self, name: str) -> bool:
        return self.raw.get(name) is not None

    def first(self, *names: str) -> str | None:
        """The first of these names that has a value."""
        return next((name for name in names if self.has(name)), None)

    def whole(
        self,
        *names: str,
        default: Any = _REQUIRED,
        low: int = 1,
        high: int = MAX_SIZE,
        zero_is_missing: bool = False,
    ) -> Any:
        """A whole number under the first of these names that has one, else the default."""
        present = [n for n in names if self.has(n)]
        if zero_is_missing:
            present = [n for n in present if self.raw[n] != 0]
        if not present:
            if default is _REQUIRED:
                raise ConfigError(f"{self.path(names[0])} is missing, and so is any other name "
                                  f"for it ({', '.join(names)}).")  # fmt: skip
            return default
        value = self.raw[present[0]]
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(
                f"{self.path(present[0])} is {_shown(value)}; a whole number was expected."
            )
        if not low <= value <= high:
            raise ConfigError(
                f"{self.path(present[0])} is {_shown(value)}; {low:,} to {high:,} were expected."
            )
        return value

    def flag(self, name: str, default: bool) -> bool:
        if not self.has(name):
            return default
        if not isinstance(self.raw[name], bool):
            raise ConfigError(
                f"{self.path(name)} is {_shown(self.raw[name])}; true or false was expected."
            )
        return self.raw[name]

    def word(self, name: str) -> str:
        """A short text, or '' when there is none."""
        if not self.has(name):
            return ""
        if not isinstance(self.raw[name], str) or len(self.raw[name]) > MAX_LAYERS:
            raise ConfigError(
                f"{self.path(name)} is {_shown(self.raw[name])}; a short text was expected."
            )
        return self.raw[name]

    def words(self, name: str) -> list[str]:
        """A list of texts."""
        value = self.raw[name]
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise ConfigError(
                f"{self.path(name)} is {_shown(value)}; a list of names was expected."
            )
        return value

    def inside(self, name: str) -> Fields:
        """The object under this name; empty when there is none."""
        return Fields({} if self.raw.get(name) is None else self.raw[name], self.path(name))

    def path(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where else name


def language_part(raw: Mapping[str, Any]) -> Fields:
    """The object that describes the decoder: multimodal configs nest it."""
    fields = Fields(raw)
    for _ in range(4):
        name = fields.first(*INNER)
        if name is None:
            return fields
        fields = fields.inside(name)
    raise ConfigError(f"{fields.where}: nested too deep; paste the decoder's own object.")


def _shown(value: Any) -> str:
    """A value in an error: short, whatever it is."""
    if isinstance(value, Mapping | list):
        return "an object" if isinstance(value, Mapping) else f"a list of {len(value):,}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 64:
        return "a number of astronomical size"
    text = json.dumps(value) if isinstance(value, str | bool | None) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."
