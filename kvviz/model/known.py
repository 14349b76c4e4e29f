"""Models by name: what `--set model=` takes beside the path of a folder. Loads no torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kvviz.errors import ConfigError
from kvviz.model import smollm2

SHIPPED = Path(__file__).resolve().parents[2] / "data" / "model"
SHIPPED_NAME = "kvviz"


class KnownModel(NamedTuple):
    """`folder()` gives the checkpoint folder, made first where it must be. `missing()` says how
    to get what it is made from; an empty text when it is there."""

    name: str
    title: str
    folder: Callable[[], Path]
    missing: Callable[[], str]


KNOWN: dict[str, KnownModel] = {
    model.name: model
    for model in (
        KnownModel("", "Python writer, 1.6 M weights (ships)", lambda: SHIPPED, lambda: ""),
        KnownModel(
            "smollm2", "SmolLM2 135M Instruct (chat)", smollm2.checkpoint, smollm2.how_to_get
        ),
    )
}


def require_known(model: str) -> None:
    """For settings that come from a page or its address: they must not name a path of the server.
    Raises ConfigError."""
    if model not in (*KNOWN, SHIPPED_NAME):
        names = ", ".join(name or SHIPPED_NAME for name in KNOWN)
        raise ConfigError(f"model={model}: a page serves models by name: {names}.")


def folder_of(model: str) -> Path:
    """The checkpoint folder of a known name, or the path that was given.

    Making it may take half a minute the first time. Raises CheckpointError.
    """
    known = KNOWN.get("" if model == SHIPPED_NAME else model)
    return known.folder() if known else Path(model).expanduser()
