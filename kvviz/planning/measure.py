"""How many requests of a mix run at once: by plain division, and by a dry replay of the engine.

A replay keeps a fixed number of requests in the system, more than fit, so that memory alone
decides how many run. Each method has a pool of its own, in slots of `grow_bytes` after full
windows and states were set aside for as many requests as division promises.

A pool for hundreds of requests is scaled down, and every result says by how much. A request is
larger beside a smaller pool, which then fragments more; from 64 requests at once on, seeds differ
more than scales do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kvviz.capacity.kvshape import KVShape
from kvviz.capacity.plan import Plan, gib
from kvviz.config import RunConfig
from kvviz.errors import ConfigError
from kvviz.planning.methods import METHODS, Method
from kvviz.planning.replay import MOST_IN_SYSTEM, closed, refusals_start, saturate, shares
from kvviz.records import Request
from kvviz.workloads.presets import preset_config
from kvviz.workloads.stream import RequestStream

Progress = Callable[[float, str], None]

MOST_AT_ONCE = 64  # requests in one replayed pool; above that the pool is scaled down
MOST_REQUESTS = 20_000
_ROOM = 8  # a scaled pool still holds this many of the longest request
_MOST_SLOTS = 1 << 22
_MOST_CONTEXT = 1 << 17


@dataclass(frozen=True)
class Outcome:
    """One method. Shares are of the pool, 0 to 1; None: not measured.

    divided: requests at once by plain division with the mean that this method takes. measured:
    their mean in the replay, times `scale`. paper and textbook: where the slots were, mean.
    refuses_from: the lowest rate tried, in requests a step, at which one of the requests found no
    place when it arrived, times `scale`; clean_up_to: the highest below it at which none did;
    refuses_as: the verdict of the first. notes: what was cut or scaled.
    """

    name: str
    slots_mean: float
    divided: float
    measured: float | None
    scale: int
    pool_slots: int
    finished: int
    preempted: int
    refused: dict[str, int]
    paper: dict[str, float] | None
    textbook: dict[str, float] | None
    refuses_from: float | None = None
    clean_up_to: float | None = None
    refuses_as: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """mix: the preset's name. requests: how many were replayed for each number."""

    mix: str
    requests: int
    seed: int
    max_len: int
    life_mean: float
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(
    plan: Plan,
    mix: str,
    *,
    requests: int = 200,
    seed: int = 1,
    rates: bool = True,
    methods: Sequence[str] = tuple(METHODS),
    progress: Progress = lambda _share, _what: None,
) -> Measured:
    """Replay `requests` requests of a preset's mix in each method's pool; with `rates`, also look
    for the rate at which refusals start. Raises ConfigError for an unknown mix or when nothing of
    the cache grows with tokens."""
    if not 10 <= requests <= MOST_REQUESTS:
        raise ConfigError(f"requests {requests}: 10 to {MOST_REQUESTS:,} were expected.")
    unit = plan.shape.grow_bytes or plan.shape.slot_bytes
    if not unit:
        raise ConfigError("nothing of this model's cache grows with tokens: no slots to replay.")
    base, notes = _base(plan, mix, seed)
    sample = _sample(base, requests)
    outcomes = []
    for index, name in enumerate(methods):
        progress(index / len(methods), name)
        outcomes.append(_outcome(name, METHODS[name], plan, base, sample, unit, rates))
    progress(1.0, "done")
    lives = [request.life for request in sample]
    return Measured(
        mix, requests, seed, base.memory.context, float(np.mean(lives)), tuple(outcomes), notes
    )


def _base(plan: Plan, mix: str, seed: int) -> tuple[RunConfig, tuple[str, ...]]:
    """The settings of every replay, in an endless pool, and what was cut."""
    context, notes = plan.max_len, []
    windows = [group.window for group in plan.shape.groups if group.window]
    if not plan.shape.grow_bytes and windows and min(windows) < context:
        context = min(windows)
        notes.append(
            f"every layer has a window: requests are cut to its {context:,} tokens, for a longer "
            "one takes no more."
        )
    if context > _MOST_CONTEXT:
        context = _MOST_CONTEXT
        notes.append(f"max_len is cut to {context:,} in the replay.")
    if context < 16:
        raise ConfigError(f"max_len {context}: a replay needs 16 tokens at least.")
    preset = preset_config(mix)
    settings = {
        "seed": seed,
        "dry": True,
        "memory.slots": _MOST_SLOTS,
        "memory.context": context,
        "paged.block_size": plan.block_size,
        "mix.samples": 1,
        "engine.token_budget": 8192,
        "engine.max_running": MOST_IN_SYSTEM,
        "engine.queue_limit": 1 << 16,
    }
    config = preset.replace(settings)
    if preset.mix.samples > 1:
        notes.append(f"one answer a prompt, not {preset.mix.samples}.")
    if config.mix.trace:  # lengths stay the same in a pool that is scaled down
        divide = RequestStream(config.mix, context, seed).scaling.divide
        config = config.replace({"mix.divide": divide})
        if divide > 1:
            notes.append(f"the trace's lengths are divided by {divide} to fit max_len.")
    return config, tuple(notes)


def _sample(config: RunConfig, requests: int) -> list[Request]:
    """The first requests of the stream."""
    mix = closed(config, MOST_IN_SYSTEM).mix
    stream = RequestStream(mix, config.memory.context, config.seed)
    taken: list[Request] = []
    while len(taken) < requests:
        taken += stream.take(len(taken), 0, 0)
    return taken[:requests]


def _outcome(
    name: str,
    method: Method,
    plan: Plan,
    base: RunConfig,
    sample: list[Request],
    unit: int,
    rates: bool,
) -> Outcome:
    taken = [method.slots(request, plan) for request in sample]
    divided = plan.pool_bytes / float(np.mean([cost(plan.shape, n) for n in taken]))
    slots, most, notes = _pool(plan, divided, unit)
    room = max(_ROOM * max(taken), base.memory.context if method.reservation == "max" else 0)
    scale = max(1, min(round(divided / MOST_AT_ONCE), slots // room))
    scale = max(scale, -(-slots // _MOST_SLOTS))
    slots //= scale
    if slots < max(64, max(taken)):
        return Outcome(name, float(np.mean(taken)), divided, None, 1, slots, 0, 0, {}, None, None,
                       notes=(*notes, "too small a pool to replay."))  # fmt: skip
    if scale > 1:
        notes = (*notes, f"replayed in a pool of 1/{scale}; requests and rates times {scale}.")
    config = base.replace(
        {
            **method.settings,
            "memory.slots": slots,
            "memory.context": min(base.memory.context, slots),
            "engine.max_running": min(MOST_IN_SYSTEM, max(1, most // scale)),
        }
    )
    expected = divided / scale
    if expected > MOST_IN_SYSTEM / 1.5:
        notes = (*notes, f"the replay has {MOST_IN_SYSTEM:,} requests at most: too few to fill it.")
    engine, tally = saturate(config, expected, len(sample))
    lowest, clean, verdict = refusals_start(config, expected, sample) if rates else (None, None, "")
    return Outcome(
        name,
        float(np.mean(taken)),
        divided,
        float(np.mean(tally.running)) * scale if tally.running else None,
        scale,
        slots,
        engine.finished,
        engine.counters().preempted,
        dict(engine.counters().refused),
        shares(tally.paper),
        shares(tally.textbook),
        lowest and lowest * scale,
        clean and clean * scale,
        verdict,
        notes,
    )


def cost(shape: KVShape, slots: int) -> int:
    """Bytes of a request that holds this many slots: windows in full, where other layers grow."""
    if shape.grow_bytes:
        return shape.constant_bytes + slots * shape.grow_bytes
    return shape.request_bytes(slots)


def _pool(plan: Plan, divided: float, unit: int) -> tuple[int, int, tuple[str, ...]]:
    """(slots of `unit` bytes, after what does not grow was set aside; requests for which it was)"""
    if not plan.shape.constant_bytes or not plan.shape.grow_bytes:
        return plan.pool_bytes // unit, _MOST_SLOTS, ()
    most = max(1, int(divided))
    aside = most * plan.shape.constant_bytes
    return (
        max(0, plan.pool_bytes - aside) // unit,
        most,
        (
            f"full windows and states of {most:,} requests set aside: {gib(aside)}; "
            "no more may run.",
        ),
    )
