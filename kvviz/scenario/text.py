"""JSON text to plain values, strictly, and where in the text each value stands.

Stricter than JSON: no key twice, no deep nesting, and what is no whole number of 64 bits is a
float, so that whoever wants a whole number refuses it. Positions are looked up when something is
wrong only, by a second walk over text that is known to be JSON.
"""

from __future__ import annotations

import json
import json.decoder
from collections.abc import Callable, Iterator
from typing import Any

from kvviz.errors import ScenarioError

MAX_BYTES = 1_000_000
MAX_DEPTH = 12
_SPACE = " \t\n\r"
_DIGITS = 19

Path = tuple[str | int, ...]
_scanstring: Callable[[str, int], tuple[str, int]] = vars(json.decoder)["scanstring"]
_raw = json.JSONDecoder(parse_int=len).raw_decode


def parse(source: str | bytes) -> tuple[str, Any]:
    """(text, value). Raises ScenarioError with line and column."""
    text = _decoded(source)
    _check_depth(text)
    try:
        value = json.loads(text, parse_int=_whole, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        raise ScenarioError(
            f"column {error.colno}: this is not JSON ({error.msg}).", line=error.lineno
        ) from error
    except _TwiceError:
        raise _twice(text) from None
    return text, value


def line_of(text: str, path: Path) -> int:
    """The line, from 1, where the value of this path begins; of the nearest one above it that
    there is."""
    best, depth = 0, -1
    for found, at in places(text):
        if len(found) > depth and found == path[: len(found)]:
            best, depth = at, len(found)
    return text.count("\n", 0, best) + 1


def name_of(path: Path) -> str:
    """("requests", 2, "prompt") -> requests[2].prompt"""
    words = "".join(f"[{part}]" if isinstance(part, int) else f".{_key(part)}" for part in path)
    return words.removeprefix(".")


def _key(part: str) -> str:
    """A key of the file in a message: short, and on one line."""
    return part if part.isidentifier() and len(part) <= 40 else json.dumps(part)[:40]


def places(text: str) -> Iterator[tuple[Path, int]]:
    """(path, offset) of every value in JSON text, in its order; a key that is there twice comes
    twice."""
    yield from _walk(text, _skip(text, 0), ())


def _walk(text: str, at: int, path: Path) -> Iterator[tuple[Path, int]]:
    yield path, at
    if text[at] not in "{[":
        return
    keyed = text[at] == "{"
    at, index = _skip(text, at + 1), 0
    while text[at] not in "}]":
        key: str | int = index
        if keyed:
            key, at = _scanstring(text, at + 1)
            at = _skip(text, _skip(text, at) + 1)  # the colon
        yield from _walk(text, at, (*path, key))
        at = _skip(text, _raw(text, at)[1])
        if text[at] == ",":
            at = _skip(text, at + 1)
        index += 1


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _decoded(source: str | bytes) -> str:
    if len(source) > MAX_BYTES:
        raise ScenarioError(
            f"the file is longer than {MAX_BYTES:,} bytes, which is all that is read. "
            "Use count in requests and repeat in ops."
        )
    if isinstance(source, str):
        return source.removeprefix("\ufeff")
    try:
        return source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = source.count(b"\n", 0, error.start) + 1
        raise ScenarioError("this is not UTF-8 text. Save the file as UTF-8.", line=line) from error


def _check_depth(text: str) -> None:
    depth, at = 0, 0
    while at < len(text):
        sign = text[at]
        if sign == '"':
            at += 1
            while at < len(text) and text[at] != '"':
                at += 2 if text[at] == "\\" else 1
        elif sign in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                line = text.count("\n", 0, at) + 1
                raise ScenarioError(
                    f"brackets are nested more than {MAX_DEPTH} deep; no scenario needs that.",
                    line=line,
                )
        elif sign in "]}":
            depth -= 1
        at += 1


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) <= _DIGITS else float("inf")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _TwiceError
    return found


def _twice(text: str) -> ScenarioError:
    """The error that names the first key that is there twice."""
    seen: set[Path] = set()
    for path, at in places(text):
        if path in seen:
            return ScenarioError(
                "this key is there twice; leave one.",
                line=text.count("\n", 0, at) + 1,
                field=name_of(path),
            )
        seen.add(path)
    raise AssertionError("a key was found twice, and now it is not")


class _TwiceError(Exception):
    pass
