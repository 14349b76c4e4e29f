"""Broken files, made from good ones. Whoever makes one brings the random numbers: Hypothesis in the
tests, so that a finding shrinks, a seed in the long run."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from random import Random
from typing import Any

SCRIPT = '<img src=x onerror="alert(1)">'
DEEP = 3000
NUMBERS: list[Any] = [
    0, 1, -1, 2, 3, 7, 63, 255, 1 << 15, (1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1, 1 << 63,
    1 << 64, 10**25, 10**400, -(10**30), 0.5, -0.0, 1e-320, 1e16, 1e22, 1e308, -1e308, float("nan"),
    float("inf"), float("-inf"),
]  # fmt: skip
WORDS = [
    "", " ", "a", "NaN", "null", "true", "0x10", "1e999", "1_000", "1,000", "-1", "\u0663", "²",
    "9" * 5000, "x" * 5000, "\0", "\n", "a\r\nb", "\u2028", "\ud800", "\u202e", "é" * 50, SCRIPT,
    "</script><script>alert(1)</script>", "![a](https://example.com/a.png)", "[a](javascript:b)",
    "$\\frac{1}{0}$", "`a`", ":red[b]", "../../../../etc/passwd", "/etc/passwd", "C:\\a\\b", "..",
    "file:///etc/passwd", "__import__('os').system('false')", "{{ 7 * 7 }}", "{0.__class__}",
    "%s%n", "=1+1", "!!python/object/apply:os.system ['false']", "cposix\nsystem\n(S'false'\ntR.",
]  # fmt: skip
_TOKENS = [
    b"", b"\0", b"\n", b"\r\n", b"\r", b",", b";", b"\t", b'"', b"'", b"{", b"}", b"[", b"]", b":",
    b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\x80", b"\xed\xa0\x80", b"NaN", b"Infinity",
    b"-Infinity", b"null", b"true", b"1e999", b"-1", b"1e400", b"0" * 30, b"9" * 30, b"9" * 5000,
    b"1_0", b'"a":1,"a":2', b"[" * DEEP, b'{"a":' * DEEP, b"\\ud800", b"\x1f\x8b", b"PK\x03\x04",
    b"PAR1", b"\x80\x04", b"../", b"__import__('os')",
]  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")


def one_of(random: Random, values: Any) -> Any:
    return values[random.randrange(len(values))]


def odd(random: Random) -> Any:
    """Any value of JSON, most of them of no use."""
    kind = random.randrange(10)
    if kind < 4:
        return one_of(random, NUMBERS)
    if kind < 7:
        return one_of(random, WORDS)
    if kind == 7:
        return one_of(random, [None, True, False, [], {}, [[]], [None], {"": {}}, [0] * 40])
    if kind == 8:
        return nested(random.randrange(2, 60))
    return random.randrange(-9, 5000)


def nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def broken_text(random: Random, data: bytes) -> bytes:
    """One to three faults in the bytes of a text."""
    for _ in range(1 + random.randrange(3)):
        data = one_of(random, _TEXT_FAULTS)(random, data)
    return data


def broken_bytes(random: Random, data: bytes) -> bytes:
    """One to three faults in any file."""
    for _ in range(1 + random.randrange(3)):
        data = one_of(random, _FAULTS)(random, data)
    return data


def broken_json(random: Random, data: bytes) -> bytes:
    """One to three odd values in a document, and now and then faults in its text as well."""
    value = json.loads(data)
    for _ in range(1 + random.randrange(3)):
        value = broken_value(random, value)
    text = json.dumps(value, ensure_ascii=random.randrange(4) > 0)
    data = text.encode("utf-8", "surrogatepass")
    return broken_text(random, data) if random.randrange(5) == 0 else data


def broken_value(random: Random, value: Any) -> Any:
    """A copy of a tree of dicts and lists with one fault somewhere."""
    places = list(_places(value, ()))
    path = one_of(random, places)
    fault = random.randrange(8)
    if fault == 0 and len(places) > 1:
        other = one_of(random, places)
        return _with(value, path, _at(value, other))
    here = _at(value, path)
    if fault == 1 and isinstance(here, dict) and here:
        key = one_of(random, sorted(here))
        return _with(value, path, {k: v for k, v in here.items() if k != key})
    if fault == 2 and isinstance(here, dict) and here:
        key = one_of(random, sorted(here))
        new = one_of(random, WORDS)
        return _with(value, path, {new if k == key else k: v for k, v in here.items()})
    if fault == 3 and isinstance(here, list) and here:
        cut = random.randrange(len(here))
        return _with(value, path, here[:cut] if random.randrange(2) else here[cut:] + here)
    return _with(value, path, odd(random))


def _places(value: Any, path: tuple[Any, ...]) -> Any:
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:60]):
            yield from _places(inner, (*path, index))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _with(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _with(value[path[0]], path[1:], new)
    return copy


def _flip(random: Random, data: bytes) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    for _ in range(1 + random.randrange(4)):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _cut(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _drop(random: Random, data: bytes) -> bytes:
    start = random.randrange(len(data) + 1)
    return data[:start] + data[start + random.randrange(1, 200) :]


def _again(random: Random, data: bytes) -> bytes:
    start = random.randrange(len(data) + 1)
    piece = data[start : start + random.randrange(1, 400)]
    return data[:start] + piece * (1 + random.randrange(4)) + data[start:]


def _insert(random: Random, data: bytes) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + _token(random) + data[at:]


def _number(random: Random, data: bytes) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return _insert(random, data)
    match = one_of(random, found)
    new = str(one_of(random, NUMBERS)).encode() if random.randrange(3) else _token(random)
    return data[: match.start()] + new + data[match.end() :]


def _swap(random: Random, data: bytes) -> bytes:
    """Two fields of the file change places."""
    sign = one_of(random, [b",", b"\n", b":", b";"])
    parts = data.split(sign)
    a, b = random.randrange(len(parts)), random.randrange(len(parts))
    parts[a], parts[b] = parts[b], parts[a]
    return sign.join(parts)


def _ends(random: Random, data: bytes) -> bytes:
    return data.replace(b"\n", one_of(random, [b"\r\n", b"\r", b"\n\n", b"", b"\n\r"]))


def _coded(random: Random, data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    code = one_of(random, ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "utf-7"])
    return text.encode(code, "replace")


def _packed(random: Random, data: bytes) -> bytes:
    whole = gzip.compress(data, 1, mtime=0)
    return whole if random.randrange(2) else whole[: random.randrange(len(whole))]


def _token(random: Random) -> bytes:
    if random.randrange(3):
        return one_of(random, _TOKENS)
    return one_of(random, WORDS).encode("utf-8", "surrogatepass")


Fault = Callable[[Random, bytes], bytes]
_FAULTS: list[Fault] = [_flip, _flip, _cut, _drop, _again, _insert]
_TEXT_FAULTS: list[Fault] = [*_FAULTS, _number, _number, _number, _swap, _swap, _ends, _coded,
                             _packed]  # fmt: skip
