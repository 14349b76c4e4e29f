"""The PagedAttention paper's figure 2 and figure 13a, measured on these caches.

Kwon et al., Efficient Memory Management for Large Language Model Serving with PagedAttention,
SOSP '23. The setting: OPT-13B in fp16 and 12 GiB for K and V, ShareGPT lengths; Orca's baselines
reserve at admission, by buddy allocation, what section 6.1 says; vLLM has blocks of 16.

What the bars are. Figure 2 says "average percentage of memory wastes during the experiment in
6.2". The bar of Orca (Max) has 8.9 % for "external and others", and 7 regions of 2,048 leave 8.85 %
of the pool: so the bars are shares of the whole pool, averaged over time, while requests always
wait. That is measured here: every step counts the same, and a queue never runs dry. Free memory is
"external and others" then, for it fits nobody who waits, and so is the buddies' rounding, which is
known at admission; internal is what the output was reserved for and did not use.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NamedTuple

import numpy as np

from kvviz import __version__
from kvviz.build import build_lanes
from kvviz.config import RunConfig
from kvviz.engine.engine import Engine
from kvviz.engine.lanes import Lanes
from kvviz.errors import ConfigError
from kvviz.metrics import paper_breakdown
from kvviz.shapes import ModelShape
from kvviz.studies.sharegpt import ShareGPTStream
from kvviz.sweeps.job import Cancelled, Progress, Told
from kvviz.sweeps.kept import Kept
from kvviz.sweeps.pool import Pool, run_tasks

SOURCE = (
    "Kwon et al., Efficient Memory Management for Large Language Model Serving with "
    "PagedAttention, SOSP '23, figures 2 and 13a (arXiv 2309.06180)"
)
PARTS = ("token states", "reservation", "internal", "external and others")
NEAR = 5.0  # points of the pool

OPT_13B = ModelShape(
    hidden_size=5120, num_hidden_layers=40, num_attention_heads=40, num_key_value_heads=40,
    head_dim=128, max_position_embeddings=2048,
)  # fmt: skip
SLOT_BYTES = OPT_13B.slot_bytes(2)
POOL_BYTES = 12 << 30
SLOTS = POOL_BYTES // SLOT_BYTES
CONTEXT = 2048
WATERMARK = 0.01  # vLLM's at the time


class System(NamedTuple):
    """Settings that make it, and what the paper printed: shares of the pool in percent, and mean
    requests batched at 2 requests a second. None: not told."""

    lane: str
    settings: dict[str, Any]
    published: tuple[float | None, ...]
    batched: float


def _orca(reservation: str, published: tuple[float, ...], batched: float) -> System:
    return System("buddy", {"contiguous.reservation": reservation}, published, batched)


SYSTEMS = {
    "Orca (Max)": _orca("max", (20.4, 13.3, 57.3, 8.9), 7.00),
    "Orca (Pow2)": _orca("pow2", (26.8, 17.9, 13.6, 41.6), 9.81),
    "Orca (Oracle)": _orca("oracle", (38.2, 25.2, 0.0, 36.6), 13.62),
    "vLLM": System(
        "paged",
        {"paged.block_size": 16, "paged.watermark": WATERMARK},
        (96.3, None, None, None),
        30.42,
    ),
}


class Run(NamedTuple):
    """One system under load for `warm + steps` steps; the first `warm` are not counted, for all
    requests began together. `scaled`: lengths have the paper's means."""

    system: str
    seed: int
    steps: int = 10_000
    warm: int = 2_000
    every: int = 20
    scaled: bool = True

    @property
    def key(self) -> str:
        """Of all that the result follows from, and the version of kvviz."""
        told = json.dumps([__version__, self._asdict(), SYSTEMS[self.system].settings])
        return "paper-" + hashlib.sha256(told.encode()).hexdigest()[:32]


def measure(run: Run) -> dict[str, float]:
    """Means over time: the parts and `rounding` (the buddies' share of external and others) in
    percent of the pool, `batched` requests, `preempted` for each that finished."""
    lanes = _lanes(run)
    try:
        engine = lanes.engines[SYSTEMS[run.system].lane]
        samples = []
        for step in range(run.warm + run.steps):
            lanes.step()
            if step >= run.warm and step % run.every == 0:
                samples.append(_sample(engine))
        means = np.mean(samples, axis=0)
        counters = engine.counters()
        return {
            **dict(zip(PARTS, (100 * means[:4] / SLOTS).tolist(), strict=True)),
            "rounding": float(100 * means[4] / SLOTS),
            "batched": float(means[5]),
            "finished": counters.finished,
            "preempted": counters.preempted / max(counters.finished, 1),
        }
    finally:
        lanes.close()


def run_paper(
    seeds: tuple[int, ...],
    pool: Pool,
    *,
    steps: int = 10_000,
    scaled: bool = True,
    kept: Kept | None = None,
    told: Told = lambda _: None,
    cancelled: Cancelled = lambda: False,
) -> dict[str, Any]:
    """Every system with every seed, beside what was published, as a dict that JSON holds.

    `kept` has runs that are not run again. A run that failed or was cancelled is left out; a
    system without any has `measured` None.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError("seeds: one or more different ones were expected.")
    if not 100 <= steps <= 1_000_000:
        raise ConfigError(f"steps {steps}: 100 to 1,000,000 were expected.")
    runs = {
        f"{name} {seed}": Run(name, seed, steps, scaled=scaled)
        for name in SYSTEMS
        for seed in seeds
    }
    found = {key: result for key, run in runs.items() if kept and (result := kept.get(run.key))}
    read = len(found)

    def done(key: str, result: dict[str, float]) -> None:
        if kept:
            kept.put(runs[key].key, result)
        found[key] = result
        told(Progress(len(found), read, 0, len(runs)))

    told(Progress(read, read, 0, len(runs)))
    todo = {key: run for key, run in runs.items() if key not in found}
    failed = run_tasks(measure, todo, pool, done=done, cancelled=cancelled) if todo else {}
    told(Progress(len(found), read, len(failed), len(runs)))
    results = {
        name: [found[key] for key, run in runs.items() if run.system == name and key in found]
        for name in SYSTEMS
    }
    return {
        "source": SOURCE,
        "setting": {
            "slots": SLOTS, "slot_bytes": SLOT_BYTES, "pool_bytes": POOL_BYTES,
            "context": CONTEXT, "block_size": 16, "watermark": WATERMARK,
            "steps": steps, "seeds": list(seeds), "scaled_to_published_means": scaled,
        },
        "systems": {name: _beside(name, results[name]) for name in SYSTEMS},
        "failed": failed,
    }  # fmt: skip


def empty_report() -> dict[str, Any]:
    """What was published, and nothing measured."""
    return {
        "source": SOURCE,
        "systems": {name: _beside(name, []) for name in SYSTEMS},
        "failed": {},
    }


def _lanes(run: Run) -> Lanes:
    system = SYSTEMS[run.system]
    config = RunConfig().replace(
        {
            "dry": True,
            "lanes": system.lane,
            "seed": run.seed,
            "memory.slots": SLOTS,
            "memory.context": CONTEXT,
            # more than ever fit: memory alone says how many are batched
            "mix.arrivals": "closed",
            "mix.concurrency": 128,
            "engine.max_running": 256,
            "engine.token_budget": 8192,
            "engine.queue_limit": 1024,
            "engine.check_every": 0,
            **system.settings,
        }
    )
    engines = build_lanes(config, history=1).engines
    stream = ShareGPTStream(config.mix, CONTEXT, run.seed, scaled=run.scaled)
    return Lanes(engines, stream, config)


def _sample(engine: Engine) -> tuple[float, ...]:
    """Slots: the four parts, the buddies' rounding; and requests in the batch."""
    snapshot = engine.snapshot()
    parts = paper_breakdown(snapshot, ask=1)
    rounding = snapshot.extras.get("rounding_loss", 0)
    internal = parts.internal - rounding
    others = parts.total - parts.written - parts.reserved - internal
    return parts.written, parts.reserved, internal, others, rounding, len(snapshot.seq_id)


def _beside(name: str, runs: list[dict[str, float]]) -> dict[str, Any]:
    system = SYSTEMS[name]
    published = {
        **dict(zip(PARTS, system.published, strict=True)), "batched": system.batched,
    }  # fmt: skip
    measured = (
        {figure: _spread([run[figure] for run in runs]) for figure in runs[0]} if runs else None
    )
    difference = {
        figure: round(measured[figure]["mean"] - value, 2)
        for figure, value in published.items()
        if measured and value is not None
    }
    return {
        "published": published,
        "measured": measured,
        "difference": difference,
        "near": bool(difference) and all(abs(difference.get(part, 0)) <= NEAR for part in PARTS),
    }


def _spread(values: list[float]) -> dict[str, float]:
    """Over the seeds."""
    return {
        "mean": round(float(np.mean(values)), 3),
        "low": round(min(values), 3),
        "high": round(max(values), 3),
        "deviation": round(float(np.std(values, ddof=1)), 3) if len(values) > 1 else 0.0,
    }
