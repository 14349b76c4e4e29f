"""Axes of settings, and the cells of their grid."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvviz.config import RunConfig
from kvviz.errors import ConfigError
from kvviz.sweeps.cell import Cell

MAX_CELLS = 10_000
MAX_STEPS = 1_000_000
MAX_SEEDS = 1000
# These have a place of their own; and a cell, which is dry, has no device to have a share of
FIXED = ("seed", "dry", "preset", "model", "lanes", "memory.share")


@dataclass(frozen=True)
class Place:
    """Where a cell stands in the grid: its values on the axes, and its seed."""

    settings: Mapping[str, Any]
    seed: int
    cell: Cell


@dataclass(frozen=True)
class Grid:
    """Every combination of the axes' values over `base`, each with every seed.

    Raises ConfigError for an axis or a value that can't be, and for a cell that contradicts
    itself, before anything runs.
    """

    base: RunConfig
    axes: Mapping[str, tuple[Any, ...]]
    seeds: tuple[int, ...] = (1,)
    steps: int = 2000

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= MAX_STEPS:
            raise ConfigError(f"steps {self.steps}: 1 to {MAX_STEPS:,} were expected.")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ConfigError("seeds: one or more different ones were expected.")
        for path, values in self.axes.items():
            _check_axis(path, values)
        count = len(self.seeds)
        for values in self.axes.values():
            count *= len(values)
        if count > MAX_CELLS:
            raise ConfigError(
                f"{count:,} cells are more than {MAX_CELLS:,}. Leave out values or seeds."
            )
        assert self.places, "a grid has a cell at least"

    @cached_property
    def places(self) -> list[Place]:
        """Every cell, the last axis and then the seeds running fastest."""
        return [
            Place(settings, seed, self._cell(settings, seed))
            for values in itertools.product(*self.axes.values())
            for settings in [dict(zip(self.axes, values, strict=True))]
            for seed in self.seeds
        ]

    def _cell(self, settings: Mapping[str, Any], seed: int) -> Cell:
        try:
            config = self.base.replace({"dry": True, **settings, "seed": seed})
        except ConfigError as error:
            where = ", ".join(f"{path}={value}" for path, value in settings.items())
            raise ConfigError(f"The cell {where}: {error}") from error
        return Cell(config, self.steps)


def parse_axes(words: Iterable[str]) -> dict[str, tuple[Any, ...]]:
    """`["paged.block_size=1,2"]` -> `{"paged.block_size": (1, 2)}`, values in the type of their
    setting. Raises ConfigError."""
    axes: dict[str, tuple[Any, ...]] = {}
    for word in words:
        path, equals, values = word.partition("=")
        path = path.strip()
        if not equals or not values.strip():
            raise ConfigError(
                f"{word!r} is no axis: write a.b=value,value, for example paged.block_size=8,16."
            )
        if path in axes:
            raise ConfigError(f"{path} is an axis twice. Write all its values in one.")
        axes[path] = tuple(read_value(path, value.strip()) for value in values.split(","))
    return axes


def parse_seeds(text: str) -> tuple[int, ...]:
    """`1,2,5` or `1-5`. Raises ConfigError."""
    first, dash, last = text.partition("-")
    try:
        if dash:
            seeds: Sequence[int] = range(int(first), int(last) + 1)
        else:
            seeds = [int(word) for word in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"seeds {text!r}: numbers like 1,2,5 or 1-5 were expected.") from error
    if not seeds or seeds[MAX_SEEDS:]:
        raise ConfigError(f"seeds {text!r}: one to {MAX_SEEDS:,} of them were expected.")
    return tuple(seeds)


def read_value(path: str, text: str) -> Any:
    """A value as its setting's type. Raises ConfigError."""
    if path in FIXED:
        raise ConfigError(_no_axis(path))
    changed = _alone(path, text)
    return next(value for known, value, _ in changed.walk() if known == path)


def _alone(path: str, value: Any) -> RunConfig:
    """The defaults with one setting changed, on a pool that any context fits in."""
    roomy = {} if path.startswith("memory.") else {"memory.slots": 1 << 22}
    if path == "memory.context":
        roomy = {"memory.slots": 1 << 22}
    if path == "memory.slots":
        roomy = {"memory.context": 16}
    fitted = {"mix.trace": "sharegpt-chat"} if path.startswith("mix.") else {}
    return RunConfig().replace({**roomy, **fitted, path: value})


def _check_axis(path: str, values: tuple[Any, ...]) -> None:
    if path in FIXED:
        raise ConfigError(_no_axis(path))
    if not values:
        raise ConfigError(f"The axis {path} has no values.")
    if len(set(values)) < len(values):
        raise ConfigError(f"The axis {path} has a value twice.")
    for value in values:
        _alone(path, value)


def _no_axis(path: str) -> str:
    if path == "memory.share":
        return f"{path} can't be an axis: a sweep is dry and has no device. Take memory.slots."
    return f"{path} can't be an axis: lanes, seeds and preset are chosen for the whole sweep."
