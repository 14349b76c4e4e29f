"""Finished cells on disk, one JSON file each, so that no cell runs twice."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from kvviz.errors import ConfigError


def default_folder() -> Path:
    """`$XDG_CACHE_HOME/kvviz/sweeps`, with ~/.cache for the former where it is not set."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "kvviz" / "sweeps"


class Kept:
    """Results by key. A file that is damaged counts as none, and is written anew."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{folder} can't hold finished cells: {error.strerror}. Choose another folder."
            ) from error

    def get(self, key: str) -> dict[str, Any] | None:
        try:
            told = json.loads(self._path(key).read_text(encoding="utf-8"))
            whole = told["key"] == key and told["sum"] == _sum(told["result"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return told["result"] if whole else None

    def put(self, key: str, result: dict[str, Any]) -> None:
        """Whole or not at all: written beside it, then renamed. Raises ConfigError."""
        text = json.dumps({"key": key, "sum": _sum(result), "result": result}, indent=1)
        name = ""
        try:
            with tempfile.NamedTemporaryFile(
                "w", dir=self.folder, suffix=".part", delete=False, encoding="utf-8"
            ) as file:
                name = file.name
                file.write(text + "\n")
            os.replace(name, self._path(key))
        except OSError as error:
            if name:
                Path(name).unlink(missing_ok=True)
            raise ConfigError(
                f"{self.folder} can't take a finished cell: {error.strerror}. Make room, or choose "
                "another folder."
            ) from error

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.json"


def _sum(result: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(result, sort_keys=True).encode()).hexdigest()
