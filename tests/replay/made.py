"""Loads by hand and drawn ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.config import RunConfig
from kvviz.replay.lanes import base_config
from kvviz.replay.load import Load


def load(rows: list[tuple[int, int, int]], context: int = 256) -> Load:
    """Rows of (arrival step, prompt, output)."""
    arrival, prompt, output = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    about = {
        "format": "made",
        "rows": len(rows),
        "set_aside": 0,
        "set_aside_by_reason": {},
        "prompt_tokens": int(prompt.sum()),
        "output_tokens": int(output.sum()),
        "span_s": None,
    }
    return Load(arrival, prompt, output, context, 30.0, about)


def drawn(seed: int, rows: int = 60, gap: float = 2.0, context: int = 256) -> Load:
    """Long and short requests, several of them in one step now and then."""
    random = np.random.default_rng(seed)
    arrival = np.floor(np.cumsum(random.exponential(gap, rows)))
    prompt = np.minimum(1 + random.exponential(40, rows), context * 3 // 4)
    output = np.minimum(1 + random.exponential(25, rows), context // 4)
    columns = (column.astype(int).tolist() for column in (arrival, prompt, output))
    return load(list(zip(*columns, strict=True)), context)


def base(changes: dict[str, Any] | None = None, slots: int = 512, context: int = 256) -> RunConfig:
    """A pool that runs short, and an engine whose limits are felt."""
    small = {"engine.token_budget": 128, "engine.max_running": 24, "engine.queue_limit": 40}
    return base_config(slots, context).replace({**small, **(changes or {})})
