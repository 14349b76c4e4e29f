"""The guard finds what it is there for; else the long run proves nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import pytest

from kvviz.errors import ConfigError, KvvizError
from tests.fuzz.guard import Finding, watched


def _refuse() -> None:
    raise ConfigError("no")


def _several_lines() -> None:
    error = KvvizError("no")
    error.args = ("no\nand no",)
    raise error


def _too_large() -> None:
    bytearray(64 << 20)


def _write() -> None:
    with contextlib.suppress(OSError), open("/tmp/kvviz-fuzz-nowhere/x", "w"):
        pass


def _busy() -> None:
    while True:
        pass


def test_a_refusal_is_handed_back() -> None:
    assert watched(_refuse, 10) == "no"
    assert watched(lambda: 3, 10) == ""


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (_several_lines, "several lines"),
        (lambda: open("/etc/hostname").close(), "reached outside: open"),
        (_write, "reached outside: open"),
        (lambda: os.system("true"), "reached outside: os.system"),
        (_busy, "still running"),
    ],
    ids=["lines", "read", "write", "run", "busy"],
)
def test_what_must_not_happen_is_found(call: Callable, told: str, monkeypatch) -> None:
    monkeypatch.setattr("tests.fuzz.guard.SECONDS", 0.02)
    with pytest.raises(Finding, match=told):
        watched(call, 0)


def test_memory_is_measured() -> None:
    with pytest.raises(Finding, match="64 MiB for a file of 10 bytes"):
        watched(_too_large, 10, memory=True)


def test_any_other_exception_comes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        watched(lambda: 1 // 0, 10)
