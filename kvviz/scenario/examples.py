"""The scenarios that ship with kvviz, by file name."""

from __future__ import annotations

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "data" / "scenarios"


@cache
def examples() -> dict[str, str]:
    """{name: text of the file}, in the order of the names."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.json"))}
