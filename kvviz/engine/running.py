"""The rows of a snapshot that tell of the running requests."""

from __future__ import annotations

from collections.abc import Sequence as Rows

import numpy as np

from kvviz.caches.layout import Layout
from kvviz.engine.sequence import Sequence

_NAMES = ("id", "life", "prompt", "since")


class RunningFacts:
    """What stays as it is while a sequence runs, a column a sequence in the order of the running
    list: a snapshot of a thousand of them copies it, instead of asking each."""

    def __init__(self) -> None:
        self._wide = np.zeros((len(_NAMES), 64), np.int64)
        self._count = 0

    def add(self, sequence: Sequence) -> None:
        """It runs now, behind all others."""
        at, request = self._count, sequence.request
        if at == self._wide.shape[1]:
            self._wide = np.concatenate([self._wide, np.zeros_like(self._wide)], axis=1)
        self._wide[:, at] = request.id, sequence.life, request.prompt_len, sequence.admitted
        self._count = at + 1

    def remove(self, at: int) -> None:
        """The one at this place of the list runs no more."""
        self._wide[:, at : self._count - 1] = self._wide[:, at + 1 : self._count]
        self._count -= 1

    def shorten(self, at: int, life: int) -> None:
        """The one at this place will hold so many slots at its end."""
        self._wide[_NAMES.index("life"), at] = life

    def columns(self) -> np.ndarray:
        """A copy, int64 [4, running]: id, life, prompt, and the step of its admission."""
        return self._wide[:, : self._count].copy()


def running_columns(
    running: Rows[Sequence], facts: RunningFacts, layout: Layout
) -> dict[str, np.ndarray]:
    """`Snapshot`'s `seq_*`, int64 [running] each, in the order of `running`."""
    id, life, prompt, since = facts.columns()
    ids = id.tolist()
    held_each = getattr(layout, "held_each", None)
    return {
        "seq_id": id,
        "seq_used": _column([sequence.written for sequence in running]),
        "seq_life": life,
        "seq_held": held_each(ids) if held_each else _column([layout.held(each) for each in ids]),
        "seq_prompt": prompt,
        "seq_since": since,
    }


def _column(numbers: list[int]) -> np.ndarray:
    return np.fromiter(numbers, np.int64, len(numbers))
