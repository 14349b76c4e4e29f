"""Snapshots by hand, and short dry runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from kvviz.build import build_lanes
from kvviz.engine.lanes import Lanes
from kvviz.records import HOLE, Columns, Counters, Snapshot, Verdict
from kvviz.workloads.presets import preset_config


def snapshot(
    rows: Sequence[tuple[int, int, int]],
    *,
    grain: int = 1,
    head: Verdict | None = None,
    waiting: Sequence[tuple[int, int]] = (),
    life: dict[int, int] | None = None,
    since: dict[int, int] | None = None,
    admissible: int | None = None,
    counters: Counters | None = None,
    step: int = 100,
) -> Snapshot:
    """`rows`: (size, used, owner) in address order; `waiting`: (id, need), head first."""
    size, used, owner = np.array(rows, np.int64).reshape(-1, 3).T
    start = np.concatenate([[0], np.cumsum(size)[:-1]])
    ids = list(dict.fromkeys(int(o) for o in owner if o != HOLE))
    held = {i: int(size[owner == i].sum()) for i in ids}
    written = {i: int(used[owner == i].sum()) for i in ids}
    free = owner == HOLE
    if admissible is None:
        biggest = int(size[free].max()) if free.any() else 0
        admissible = int(size[free].sum()) if grain > 1 else biggest
    made = Snapshot(
        step,
        1.0,
        int(size.sum()),
        grain,
        grain > 1,
        64,
        admissible,
        Columns(start, size, used, owner, (~free).astype(np.int64)),
        np.array(ids, np.int64),
        np.array([written[i] for i in ids], np.int64),
        np.array([(life or held)[i] for i in ids], np.int64),
        np.array([held[i] for i in ids], np.int64),
        np.array([min(written[i], 1) for i in ids], np.int64),
        np.array([(since or {}).get(i, 0) for i in ids], np.int64),
        waiting_id=np.array([i for i, _ in waiting], np.int64),
        waiting_need=np.array([n for _, n in waiting], np.int64),
        head=head,
        counters=counters or Counters(running=len(ids), waiting=len(waiting)),
    )
    made.check()
    return made


@lru_cache(maxsize=64)
def lanes_after(preset: str, steps: int, *changes: tuple[str, Any]) -> Lanes:
    """Dry lanes of a preset after so many steps; shared, so don't step them."""
    lanes = build_lanes(preset_config(preset).replace({"dry": True, **dict(changes)}))
    for _ in range(steps):
        lanes.step()
    return lanes


def shots_after(preset: str, steps: int, *changes: tuple[str, Any]) -> dict[str, Snapshot]:
    engines = lanes_after(preset, steps, *changes).engines
    return {name: engine.snapshot() for name, engine in engines.items()}
