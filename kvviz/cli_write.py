"""Where a command's report goes: a file, or standard output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kvviz.errors import ConfigError


def write(report: dict[str, Any], where: str | None) -> None:
    """As JSON; `-` is standard output. Raises ConfigError."""
    if where is None:
        return
    write_text(json.dumps(report, indent=1) + "\n", where)


def write_text(text: str, where: str) -> None:
    if where == "-":
        print(text, end="")
        return
    try:
        Path(where).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or "it is no file name"
        raise ConfigError(f"{where} can't be written: {said}.") from error
