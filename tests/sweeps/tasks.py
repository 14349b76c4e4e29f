"""Tasks that workers can import, some of which end their worker."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


class Task(NamedTuple):
    """`deaths`: how many times the task ends its worker before it answers, counted by files in
    `folder`; "error" as word raises."""

    word: str
    folder: str = ""
    deaths: int = 0


def shout(task: Task) -> str:
    """The word in capitals."""
    if task.deaths:
        died = len(list(Path(task.folder).glob(f"{task.word}-*")))
        if died < task.deaths:
            (Path(task.folder) / f"{task.word}-{died}").touch()
            os._exit(1)
    if task.word == "error":
        raise ValueError("no such word")
    return task.word.upper()
