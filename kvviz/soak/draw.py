"""What a round of the soak runs: settings drawn by a seed over everything that lanes can be."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from kvviz.config import (
    ADMISSIONS,
    ALLOCATORS,
    COALESCE,
    COMPACT_BY,
    COMPACTIONS,
    FITS,
    LANES,
    ORDERS,
    PREEMPTIONS,
    QUEUES,
    RECLAIMS,
    RESERVATIONS,
    VICTIMS,
    RunConfig,
)

_SEEDS = 1_000_003  # of a soak's rounds; a prime, so that two soaks do not run the same ones
_LONGEST = 90  # tokens of a long prompt
_CHANGE_STEPS = 40

# A running engine takes these
_LIVE: dict[str, tuple[Any, ...]] = {
    "mix.arrivals": ("poisson", "steady", "bursts", "trace", "closed"),
    "mix.rate": (0.1, 0.4, 1.0, 3.0),
    "mix.burst": (1, 6),
    "mix.concurrency": (1, 8, 24),
    "mix.prompts": ("lognormal", "uniform", "fixed"),
    "mix.outputs": ("lognormal", "uniform", "fixed"),
    "mix.prompt_mean": (3, 20, 40),
    "mix.output_mean": (2, 15, 30),
    "mix.long_share": (0.0, 0.2),
    "mix.prefix_share": (0.0, 0.7),
    "mix.prefix_tokens": (5, 16, 32),
    "mix.samples": (1, 1, 2, 4),
    "mix.urgent_share": (0.0, 0.4),
    "contiguous.fit": FITS,
    "contiguous.coalesce": COALESCE,
    "contiguous.order": ORDERS,
    "contiguous.reservation": RESERVATIONS,
    "contiguous.compaction": COMPACTIONS,
    "contiguous.compact_by": COMPACT_BY,
    "contiguous.compact_share": (0.05, 0.2),
    "contiguous.compact_slots": (8, 256),
    "paged.admission": ADMISSIONS,
    "paged.watermark": (0.0, 0.1),
    "virtual.reclaim": RECLAIMS,
    "engine.token_budget": (9, 32, 64),
    "engine.max_running": (2, 8, 32),
    "engine.chunk": (0, 5),
    "engine.queue": QUEUES,
    "engine.victim": VICTIMS,
    "engine.preemption": PREEMPTIONS,
    "engine.queue_limit": (2, 16, 64),
}
# These hold for the whole round
_FIXED: dict[str, tuple[Any, ...]] = {
    "memory.slots": (256, 512, 1024, 2048),
    "memory.context": (64, 128),
    "contiguous.allocator": ALLOCATORS,
    "paged.block_size": (1, 4, 7, 16),
    "paged.prefix_sharing": (False, True),
    "paged.null_block": (False, True),
    "paged.page_blocks": (0, 4),
    "cells.buffers": (2, 4),
    "engine.swap_slots": (0, 64, 4096),
    "engine.temperature": (0.0, 0.7),
    "engine.ends": ("mix", "mix", "model"),
}
_CHECKS = (1, 3, 8)  # steps between two checks of the map


class Round(NamedTuple):
    """`changes`: settings that the running engines take before these steps."""

    number: int
    config: RunConfig
    steps: int
    changes: dict[int, RunConfig]

    def at(self, step: int) -> RunConfig:
        """The settings in force at this step."""
        return next((c for s, c in reversed(self.changes.items()) if s <= step), self.config)


def draw(seed: int, number: int) -> Round:
    """Round `number` of the soak with this seed: the same for ever, whatever ran before it."""
    random = Random(seed * _SEEDS + number)
    lanes = random.sample(LANES, random.randint(2, 4))
    config = _settled(
        RunConfig(),
        {
            **{path: random.choice(values) for path, values in (_FIXED | _LIVE).items()},
            "lanes": ",".join(lanes),
            "mix.trace": "azure-chat-2023",
            "mix.long_prompt": _LONGEST,
            "mix.prefixes": 2,
            "engine.check_every": random.choice(_CHECKS),
            "seed": random.randrange(1 << 20),
        },
    )
    steps = random.randrange(2 * _CHANGE_STEPS, 8 * _CHANGE_STEPS)
    changes: dict[int, RunConfig] = {}
    newest = config
    for step in range(_CHANGE_STEPS, steps, _CHANGE_STEPS):
        paths = random.sample(sorted(_LIVE), 6)
        newest = _settled(newest, {path: random.choice(_LIVE[path]) for path in paths})
        changes[step] = newest
    return Round(number, config, steps, changes)


def set_line(config: RunConfig) -> str:
    """The settings that are not the defaults, as `--set` takes them."""
    usual = {path: value for path, value, _ in RunConfig().walk()}
    return " ".join(f"{path}={value}" for path, value, _ in config.walk() if value != usual[path])


def _settled(config: RunConfig, changes: dict[str, Any]) -> RunConfig:
    """The one pair of policies that is refused gives way to another."""
    now = {path: value for path, value, _ in config.walk()} | changes
    if (now["engine.victim"], now["paged.admission"]) == ("oldest", "chunk"):
        changes = {**changes, "engine.victim": "youngest"}
    return config.replace(changes)
