"""Settings: frozen, complete, checked at birth.

One grammar for all who set them: `a.b=value` (command line, tests, links). Each field carries
its help, and whether a running engine can take a new value (`live`) or must start anew.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from kvviz.errors import ConfigError

ARRIVALS = ("poisson", "steady", "bursts", "trace", "closed")
LENGTHS = ("lognormal", "uniform", "fixed", "trace")
FITS = ("first", "best", "worst", "next")
RESERVATIONS = ("oracle", "pow2", "max", "exact")
ALLOCATORS = ("fits", "buddy", "tlsf")
COALESCE = ("immediate", "deferred")
ORDERS = ("address", "lifo")
COMPACTIONS = ("off", "on_refusal", "threshold", "steady")
COMPACT_BY = ("slide", "fewest")
CELL_MODES = ("unified", "split")
RECLAIMS = ("immediate", "deferred")
PLACEMENTS = ("adjacent", "scattered")
QUEUES = ("strict", "skip", "refuse")
VICTIMS = ("youngest", "oldest", "priority")
PREEMPTIONS = ("recompute", "swap")
ADMISSIONS = ("chunk", "prompt", "limit")
ENDS = ("mix", "model")
LANES = (
    "contiguous",
    "buddy",
    "tlsf",
    "split",
    "cells",
    "scattered",
    "paged",
    "prefix",
    "virtual",
)
MAX_LANES = 9
MOST_RUNNING = 1024
MOST_SLOTS = 1 << 26


def setting(
    default: Any,
    help: str,
    *,
    live: bool = True,
    choices: tuple[str, ...] = (),
    low: float | None = None,
    high: float | None = None,
) -> Any:
    """A dataclass field with its help text, range and whether it can change while running."""
    return field(
        default=default,
        metadata={"help": help, "live": live, "choices": choices, "low": low, "high": high},
    )


@dataclass(frozen=True)
class Mix:
    """What arrives, and when. Lengths are tokens, rates are requests a step."""

    arrivals: str = setting(
        "poisson",
        "arrival process; trace has the gaps of mix.trace, closed keeps a fixed number of requests "
        "in the system",
        choices=ARRIVALS,
    )
    rate: float = setting(0.2, "requests a step (all but closed)", low=0.001, high=64)
    burst: int = setting(8, "requests that arrive together (bursts)", low=1, high=1024)
    concurrency: int = setting(32, "requests in the system (closed)", low=1, high=1024)
    prompts: str = setting("lognormal", "distribution of prompt lengths", choices=LENGTHS)
    prompt_mean: int = setting(192, "mean prompt length", low=1, high=65536)
    outputs: str = setting("lognormal", "distribution of output lengths", choices=LENGTHS)
    output_mean: int = setting(96, "mean output length", low=1, high=65536)
    spread: float = setting(0.8, "standard deviation over mean of both lengths", low=0, high=4)
    long_share: float = setting(0.1, "share of requests with a long prompt", low=0, high=1)
    long_prompt: int = setting(1024, "prompt length of the long requests", low=1, high=65536)
    trace: str = setting("", "named mix fitted to a public trace (for lengths or arrivals = trace)")
    prefix_share: float = setting(
        0.0, "share of requests that begin with a shared prefix (a system prompt)", low=0, high=1
    )
    prefix_tokens: int = setting(128, "tokens in a shared prefix", low=1, high=65536)
    prefixes: int = setting(4, "different shared prefixes", low=1, high=1024)
    samples: int = setting(1, "answers wanted for each prompt (parallel samples)", low=1, high=16)
    urgent_share: float = setting(
        0.0, "share of requests of high priority: preempted last (victim priority)", low=0, high=1
    )
    divide: int = setting(
        0,
        "divide the trace's lengths by this; 0: a power of two that "
        "brings its 99th percentile under the context",
        low=0,
        high=4096,
    )


@dataclass(frozen=True)
class Memory:
    """The pool of each lane."""

    slots: int = setting(8192, "slots in each lane's pool", live=False, low=64, high=MOST_SLOTS)
    share: float = setting(
        0.0,
        "share of the device's free memory that all pools take together, when they are made; "
        "0: memory.slots",
        live=False,
        low=0,
        high=0.95,
    )
    context: int = setting(
        2048, "longest request served: prompt + output - 1", live=False, low=16, high=1 << 17
    )


@dataclass(frozen=True)
class Contiguous:
    """The contiguous lane: one region a request."""

    allocator: str = setting(
        "fits",
        "free lists searched by fit, buddies of powers of two, or two-level segregated lists",
        live=False,
        choices=ALLOCATORS,
    )
    fit: str = setting("first", "which hole is taken (allocator fits)", choices=FITS)
    coalesce: str = setting(
        "immediate",
        "free neighbours merge at once, or only when a request finds no place",
        choices=COALESCE,
    )
    order: str = setting(
        "address", "free list searched by address, or last in, first out", choices=ORDERS
    )
    reservation: str = setting("oracle", "slots asked for at admission", choices=RESERVATIONS)
    compaction: str = setting(
        "off",
        "move live regions together: never, when a request finds no hole, when too much is wasted, "
        "or some slots each step",
        choices=COMPACTIONS,
    )
    compact_by: str = setting(
        "slide",
        "on refusal: slide all regions down, or move the fewest slots that open a hole",
        choices=COMPACT_BY,
    )
    compact_share: float = setting(
        0.2,
        "compact when free slots outside the largest hole exceed this share of the pool "
        "(threshold)",
        low=0,
        high=1,
    )
    compact_slots: int = setting(
        256, "slots moved a step, on average (steady)", low=1, high=1 << 20
    )


@dataclass(frozen=True)
class Paged:
    """The paged lane: fixed-size physical blocks under a logical sequence."""

    block_size: int = setting(16, "slots in a block", live=False, low=1, high=256)
    prefix_sharing: bool = setting(
        False, "share the full blocks of equal prefixes, found by a hash chain", live=False
    )
    admission: str = setting(
        "prompt",
        "a request is admitted when its first chunk, its whole prompt, or prompt and output limit "
        "(then reserved at once) find free blocks",
        choices=ADMISSIONS,
    )
    watermark: float = setting(
        0.0, "share of the blocks that an admission must leave free", low=0, high=0.5
    )
    null_block: bool = setting(False, "block 0 is never handed out (vLLM's null block)", live=False)
    page_blocks: int = setting(
        0,
        "blocks in a page of device memory, which returns only when all its blocks are free; "
        "0: no pages",
        live=False,
        low=0,
        high=4096,
    )


@dataclass(frozen=True)
class Cells:
    """The cells lane: a cell a token, shared by all requests or split into buffers."""

    mode: str = setting(
        "unified",
        "all requests share the cells, or equal buffers serve one request each",
        live=False,
        choices=CELL_MODES,
    )
    buffers: int = setting(
        4, "buffers that the pool is split into (split)", live=False, low=1, high=64
    )
    placement: str = setting(
        "adjacent",
        "a step's tokens need adjacent cells, or take any free ones (unified)",
        choices=PLACEMENTS,
    )


@dataclass(frozen=True)
class Virtual:
    """The virtually contiguous lane: a range of addresses a request, pages mapped as it grows."""

    page_bytes: int = setting(
        1 << 16,
        "bytes of a page of physical memory, a power of two",
        live=False,
        low=1 << 16,
        high=1 << 21,
    )
    reclaim: str = setting(
        "immediate",
        "when a finished request's pages go back: at once, or when pages run short",
        choices=RECLAIMS,
    )


@dataclass(frozen=True)
class Engine:
    """Continuous batching, the same for every lane."""

    token_budget: int = setting(
        256, "tokens a step, prefill chunks and decodes together", low=1, high=1 << 17
    )
    max_running: int = setting(64, "sequences served at once", low=1, high=MOST_RUNNING)
    chunk: int = setting(
        0,
        "longest part of a prompt that one sequence writes in a step; 0: no limit",
        low=0,
        high=1 << 17,
    )
    queue: str = setting(
        "strict",
        "when the head finds no place: all wait (strict), those behind it that fit pass it (skip), "
        "or it is refused for good (refuse)",
        choices=QUEUES,
    )
    victim: str = setting(
        "youngest", "who gives way when running requests need more memory", choices=VICTIMS
    )
    preemption: str = setting(
        "recompute",
        "a victim is computed anew, or its K and V are copied to host memory and back",
        choices=PREEMPTIONS,
    )
    swap_slots: int = setting(
        4096,
        "slots of host memory for swapped sequences, in each lane",
        live=False,
        low=0,
        high=1 << 22,
    )
    queue_limit: int = setting(
        64, "requests that may wait; one more is turned away", low=1, high=1 << 23
    )
    ends: str = setting(
        "mix",
        "output length from the mix, or the model's own end of text",
        live=False,
        choices=ENDS,
    )
    temperature: float = setting(0.7, "0 is greedy", live=False, low=0, high=4)
    check_every: int = setting(
        64,
        "steps between two checks of the map against the tensors; "
        "0: never, and freed slots are not poisoned",
        live=False,
        low=0,
        high=1 << 20,
    )


@dataclass(frozen=True)
class RunConfig:
    """Everything that a seed needs to reproduce a run exactly."""

    mix: Mix = Mix()
    memory: Memory = Memory()
    contiguous: Contiguous = Contiguous()
    paged: Paged = Paged()
    cells: Cells = Cells()
    virtual: Virtual = Virtual()
    engine: Engine = Engine()
    lanes: str = setting(
        "contiguous,paged",
        "layouts served side by side, separated by commas: " + ", ".join(LANES),
        live=False,
    )
    preset: str = setting("", "the preset these settings started from")
    seed: int = setting(
        1, "seed of lengths, arrivals and sampling", live=False, low=0, high=2**31 - 1
    )
    dry: bool = setting(False, "memory only: no model, no tensors", live=False)
    model: str = setting(
        "",
        "model folder, or smollm2 (a chat model of 135 M weights); empty: the one that ships",
        live=False,
    )

    def __post_init__(self) -> None:
        for path, value, meta in self.walk():
            _check(path, value, meta)
        _check_lanes(self.lane_names)
        if self.memory.context > self.memory.slots:
            raise ConfigError(
                f"memory.context {self.memory.context} is more than the pool of "
                f"{self.memory.slots} slots: a request that long could never be served. "
                f"Lower memory.context to {self.memory.slots} or raise memory.slots."
            )
        page = self.virtual.page_bytes
        if page & (page - 1):
            raise ConfigError(
                f"virtual.page_bytes={page}: a power of two was expected, for example "
                f"{1 << page.bit_length() - 1}."
            )
        if self.dry and self.engine.ends == "model":
            raise ConfigError(
                "engine.ends=model needs the model: a dry run has none. "
                "Leave out --dry or set engine.ends=mix."
            )
        if self.engine.victim == "oldest" and self.paged.admission == "chunk":
            raise ConfigError(
                "engine.victim=oldest with paged.admission=chunk can preempt the same requests for "
                "ever: each is admitted by its first chunk and gives way in the middle of its "
                "prompt. Choose another victim, or paged.admission=prompt."
            )
        if not self.mix.trace:
            if "trace" in (self.mix.prompts, self.mix.outputs):
                raise ConfigError(
                    "lengths = trace needs mix.trace, the name of a fitted mix (azure-chat-2023)."
                )
            if self.mix.arrivals == "trace":
                raise ConfigError(
                    "mix.arrivals=trace needs mix.trace, the name of a fitted mix "
                    "(azure-chat-2023)."
                )

    @property
    def lane_names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.lanes.split(","))

    def walk(self) -> Iterable[tuple[str, Any, Mapping[str, Any]]]:
        """Every setting as (path, value, metadata)."""
        for outer in fields(self):
            value = getattr(self, outer.name)
            if dataclasses.is_dataclass(value):
                for inner in fields(value):
                    yield (f"{outer.name}.{inner.name}", getattr(value, inner.name), inner.metadata)
            else:
                yield outer.name, value, outer.metadata

    @staticmethod
    def types() -> dict[str, type]:
        """The type of every setting by its path. (A value may be an int where a float is meant.)"""
        return {path: type(value) for path, value, _ in RunConfig().walk()}

    def replace(self, changes: Mapping[str, Any]) -> RunConfig:
        """A copy with `{"a.b": value}` applied; strings are read as the field's type."""
        known = self.types()
        parts: dict[str, Any] = {}
        for path, raw in changes.items():
            if path not in known:
                raise ConfigError(f"unknown setting {path!r}. Known: {', '.join(known)}.")
            value = _read(path, raw, known[path])
            section, _, name = path.rpartition(".")
            if section:
                parts.setdefault(section, {})[name] = value
            else:
                parts[name] = value
        return dataclasses.replace(
            self,
            **{
                name: dataclasses.replace(getattr(self, name), **value)
                if isinstance(value, dict)
                else value
                for name, value in parts.items()
            },
        )

    def differences(self, other: RunConfig) -> tuple[list[str], list[str]]:
        """Paths that differ: (a running engine can take them, these need a restart)."""
        live: list[str] = []
        restart: list[str] = []
        for (path, mine, meta), (_, theirs, _) in zip(self.walk(), other.walk(), strict=True):
            if mine != theirs:
                (live if meta["live"] else restart).append(path)
        return live, restart

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def as_json(self) -> str:
        return json.dumps(self.as_dict(), sort_keys=True)


def parse_overrides(words: Iterable[str]) -> dict[str, str]:
    """`["a.b=1"]` -> `{"a.b": "1"}`. Raises ConfigError for a word without `=`."""
    changes = {}
    for word in words:
        path, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(
                f"{word!r} is no setting: write a.b=value, for example paged.block_size=32."
            )
        changes[path.strip()] = value.strip()
    return changes


def _check_lanes(names: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in LANES]
    if unknown:
        raise ConfigError(
            f"lanes: there is no {unknown[0]!r}. Choose from {', '.join(LANES)}, "
            "separated by commas."
        )
    if len(set(names)) < len(names) or len(names) > MAX_LANES:
        raise ConfigError(f"lanes: up to {MAX_LANES} different ones were expected, not {names}.")


def _read(path: str, raw: Any, kind: type) -> Any:
    if kind is bool and isinstance(raw, str):
        if raw.lower() in ("true", "1", "yes", "on"):
            return True
        if raw.lower() in ("false", "0", "no", "off"):
            return False
        raise ConfigError(f"{path}={raw}: true or false was expected.")
    try:
        if kind is int and isinstance(raw, float) and not raw.is_integer():
            raise ValueError
        return kind(raw)
    except (TypeError, ValueError) as error:
        word = {"int": "a whole number", "float": "a number"}.get(kind.__name__, kind.__name__)
        raise ConfigError(f"{path}={raw}: {word} was expected.") from error


def _check(path: str, value: Any, meta: Mapping[str, Any]) -> None:
    if meta["choices"] and value not in meta["choices"]:
        raise ConfigError(f"{path}={value}: one of {', '.join(meta['choices'])} was expected.")
    low, high = meta["low"], meta["high"]
    if low is not None and not low <= value <= high:  # also catches nan
        raise ConfigError(f"{path}={value}: a value from {low} to {high} was expected.")
