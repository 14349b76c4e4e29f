"""The rows of a snapshot that tell of the running requests."""

from __future__ import annotations

from collections.abc import Sequence as Rows

import numpy as np

from kvviz.caches.layout import Layout
from kvviz.engine.sequence import Sequence


def running_columns(running: Rows[Sequence], layout: Layout) -> dict[str, np.ndarray]:
    """`Snapshot`'s `seq_*`, int64 [running] each, in the order of `running`."""
    requests = [sequence.request for sequence in running]
    ids = [request.id for request in requests]
    prompt = _column([request.prompt_len for request in requests])
    output = _column([request.output_len for request in requests])
    held_each = getattr(layout, "held_each", None)
    return {
        "seq_id": _column(ids),
        "seq_used": _column([sequence.written for sequence in running]),
        "seq_life": prompt + output - 1,
        "seq_held": held_each(ids) if held_each else _column([layout.held(each) for each in ids]),
        "seq_prompt": prompt,
        "seq_since": _column([sequence.admitted for sequence in running]),
    }


def _column(numbers: list[int]) -> np.ndarray:
    return np.fromiter(numbers, np.int64, len(numbers))
