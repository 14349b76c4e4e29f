"""Where a command's report goes: a file, or standard output."""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from kvviz.errors import ConfigError


def write(report: dict[str, Any], where: str | None) -> None:
    """As JSON; `-` is standard output. A file that is there stays until the new one is whole.
    Raises ConfigError."""
    if where is None:
        return
    write_text(json.dumps(report, indent=1) + "\n", where)


def write_text(text: str, where: str) -> None:
    if where == "-":
        print(text, end="")
        return
    path = Path(where)
    # A file is written as a whole or not at all; pipes, devices, /dev/stdout as they are
    whole = not path.is_symlink() and (path.is_file() or not path.exists())
    target = path.with_name(f".{path.name}.{secrets.token_hex(4)}") if whole else path
    try:
        target.write_text(text, encoding="utf-8")
        if whole:
            os.replace(target, path)
    except (OSError, ValueError) as error:
        if whole:
            with suppress(OSError, ValueError):
                target.unlink(missing_ok=True)
        said = getattr(error, "strerror", None) or "it is no file name"
        raise ConfigError(f"{where} can't be written: {said}.") from error
