"""Everything that hostile input can reach, by name."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import kvviz.caches.store  # noqa: F401 - compiles and keeps its kernels, while nobody watches
from tests.fuzz import checkpoints, files, recordings, settings
from tests.fuzz.files import Input
from tests.fuzz.guard import watched

TEMPORARY = (Path(tempfile.gettempdir()),)


class Target(NamedTuple):
    """`share`: of the inputs of a long run. `may`: folders that it may write to. `extra`: seconds
    of work that a small input may ask for, because its reader bounds it."""

    make: Callable[[Random], Input]
    share: int
    may: tuple[Path, ...] = ()
    extra: float = 0.0


TARGETS = {
    "trace": Target(files.trace, 37),
    "scenario": Target(files.scenario, 14, extra=8.0),
    "config": Target(files.config, 14),
    "settings": Target(settings.settings, 12),
    "command": Target(settings.command, 8, (Path("/no/such/folder"), Path("/dev/full"))),
    "orders": Target(settings.orders, 6),
    "recording": Target(recordings.recording, 1, extra=1.0),  # a report of 60 steps
    "checkpoint": Target(checkpoints.checkpoint, 3, (*TEMPORARY, Path(sys.executable))),
    "gguf": Target(checkpoints.gguf_file, 2, TEMPORARY),
    "chats": Target(checkpoints.chats, 3, TEMPORARY),
}


def attack(name: str, random: Random, *, memory: bool = False) -> str:
    """One input for this target. Raises Finding, or what came out that was no KvvizError."""
    target = TARGETS[name]
    made = target.make(random)
    try:
        return watched(made.call, made.size, memory=memory, may=target.may, extra=target.extra)
    except BaseException as error:
        error.add_note(f"input: {made.shown!r:.3000}")
        raise
