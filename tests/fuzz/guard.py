"""What must not happen while hostile input is read, whatever becomes of it.

`watched` runs one call: nothing but a KvvizError of one line may come out, within its time and
memory, and nothing may be run, nor a path outside of those allowed be opened.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from kvviz.errors import KvvizError

SECONDS = 1.0  # of processor time, and one more for each megabyte
ROOM = 16 << 20  # bytes beside ten times the file: what is loaded once, and buffers
TIMES = 10
_RUNS = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.fork", "os.spawn",
         "pickle.find_class", "socket.connect", "socket.bind", "ctypes.dlopen",
         "shutil.rmtree", "os.remove", "os.rename", "os.mkdir", "urllib.Request")  # fmt: skip


class Finding(AssertionError):
    """Hostile input did something that it must not."""


class _Overtime(BaseException):
    """Past every `except Exception`: the call is still running when its time is over."""


def watched(
    call: Callable[[], object],
    size: int,
    *,
    memory: bool = False,
    may: tuple[Path, ...] = (),
    extra: float = 0.0,
) -> str:
    """The refusal's text, or nothing when the input was taken. `size`: of the input in bytes;
    `memory`: measure it too, which takes several times as long; `may`: folders that are open to
    it; `extra`: seconds for what it asks to be computed. Raises Finding."""
    began = time.process_time()
    limit = SECONDS * (1 + size / (1 << 20)) + extra
    try:
        with _alarm(4 * limit), _eyes(may) as seen, _measured(size, memory):
            said = _said(call)
    except _Overtime as error:
        raise Finding(f"still running after {4 * limit:.1f} s of processor time") from error
    took = time.process_time() - began
    if seen:
        raise Finding(f"it reached outside: {seen[0]}")
    if took > limit * (8 if memory else 1):  # tracemalloc slows all it watches
        raise Finding(f"took {took:.2f} s of processor time for {size:,} bytes")
    return said


def _said(call: Callable[[], object]) -> str:
    try:
        call()
    except KvvizError as error:
        said = str(error)
        if not said or not said.isprintable():
            raise Finding(f"a message of no or several lines: {said!r:.300}") from error
        if len(said) > 4000:
            raise Finding(f"a message of {len(said):,} characters: {said:.200}") from error
        return said
    return ""


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def over(_signal: int, _frame: FrameType | None) -> None:
        raise _Overtime

    before = signal.signal(signal.SIGPROF, over)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextmanager
def _measured(size: int, memory: bool) -> Iterator[None]:
    if not memory:
        yield
        return
    traced = tracemalloc.is_tracing()
    if not traced:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        if not traced:
            tracemalloc.stop()
    if peak > TIMES * size + ROOM:
        raise Finding(f"{peak >> 20} MiB for a file of {size:,} bytes")


_watch: list[tuple[tuple[str, ...], list[str]]] = []
_hooked = False


@contextmanager
def _eyes(may: tuple[Path, ...]) -> Iterator[list[str]]:
    """What was run or opened outside of the interpreter, the project and `may`."""
    global _hooked
    sys.dont_write_bytecode = True  # or each import writes into the project
    if not _hooked:
        sys.addaudithook(_audit)  # it can't be taken off again, and looks only while it is asked to
        _hooked = True
    seen: list[str] = []
    _watch.append((tuple(os.path.realpath(path) for path in may), seen))
    try:
        yield seen
    finally:
        _watch.pop()


_KNOWN = tuple(
    {os.path.realpath(p) for p in (sys.prefix, sys.base_prefix, Path(__file__).parents[2])}
    | {
        "/proc/self",
        "/proc/cpuinfo",
        "/proc/stat",
        "/proc/meminfo",
        "/sys/devices",
        "/usr/share/zoneinfo",
        "/usr/lib",
        "/lib",
    }
)


def _audit(event: str, given: tuple[Any, ...]) -> None:
    if not _watch:
        return
    folders, seen = _watch[-1]
    if event in _RUNS:
        where = given[0] if given and isinstance(given[0], str | os.PathLike) else None
        open_to = (*folders, *_KNOWN) if event == "ctypes.dlopen" else folders
        if where is None or not _inside(where, open_to):
            seen.append(f"{event} {given!r:.200}")
    elif event == "open" and isinstance(given[0], str | bytes | os.PathLike):
        writes = given[1] is not None and any(sign in str(given[1]) for sign in "wax+")
        if not _inside(given[0], folders if writes else (*folders, *_KNOWN)):
            seen.append(f"open {given!r:.200}")


def _inside(path: Any, folders: tuple[str, ...]) -> bool:
    try:
        real = os.path.realpath(os.fsdecode(path))
    except ValueError:  # a zero in it: nothing can be opened there
        return True
    return any(real == f or real.startswith(f + os.sep) for f in folders)
