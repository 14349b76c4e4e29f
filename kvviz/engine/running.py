"""The rows of a snapshot that tell of the running requests."""

from __future__ import annotations

from collections.abc import Sequence as Rows

import numpy as np

from kvviz.caches.layout import Layout
from kvviz.engine.sequence import Sequence

_NAMES = ("id", "life", "prompt", "since", "line")


class RunningFacts:
    """What stays as it is while a sequence runs, a column a sequence in the order of the running
    list: a snapshot of a thousand of them copies it, instead of asking each."""

    def __init__(self) -> None:
        self._wide = np.zeros((len(_NAMES), 64), np.int64)
        self._count = 0

    def add(self, sequence: Sequence, line: int) -> None:
        """It runs now, behind all others, and has this line of the address table."""
        at, request = self._count, sequence.request
        if at == self._wide.shape[1]:
            self._wide = np.concatenate([self._wide, np.zeros_like(self._wide)], axis=1)
        self._wide[:, at] = (
            request.id,
            sequence.life,
            request.prompt_len,
            sequence.admitted,
            line,
        )
        self._count = at + 1

    def remove(self, at: int) -> None:
        """The one at this place of the list runs no more."""
        self._wide[:, at : self._count - 1] = self._wide[:, at + 1 : self._count]
        self._count -= 1

    def shorten(self, at: int, life: int) -> None:
        """The one at this place will hold so many slots at its end."""
        self._wide[_NAMES.index("life"), at] = life

    def lines(self, count: int) -> np.ndarray:
        """The lines of the table of the first `count`, int64 [count]: a view, until the next
        comes or goes."""
        return self._wide[_NAMES.index("line"), :count]

    def columns(self) -> np.ndarray:
        """A copy, int64 [5, running]: id, life, prompt, the step of its admission, and its line
        of the address table."""
        return self._wide[:, : self._count].copy()


def running_columns(
    running: Rows[Sequence], facts: RunningFacts, layout: Layout
) -> dict[str, np.ndarray]:
    """`Snapshot`'s `seq_*`, int64 [running] each, in the order of `running`."""
    id, life, prompt, since, lines = facts.columns()
    used, held = _sizes(running, lines, layout)
    return {
        "seq_id": id,
        "seq_used": used,
        "seq_life": life,
        "seq_held": held,
        "seq_prompt": prompt,
        "seq_since": since,
    }


def _sizes(
    running: Rows[Sequence], lines: np.ndarray, layout: Layout
) -> tuple[np.ndarray, np.ndarray]:
    """(slots written, slots held). Between two steps all that a layout has counted is written."""
    sizes_each = getattr(layout, "sizes_each", None)
    if sizes_each:
        return sizes_each(lines)
    used = [sequence.written for sequence in running]
    held = [layout.held(sequence.request.id) for sequence in running]
    return np.array(used, np.int64), np.array(held, np.int64)
