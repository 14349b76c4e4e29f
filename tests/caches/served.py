"""What the state machine of the layouts has done, and serial numbers of what it has written."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kvviz.caches.layout import Layout
from kvviz.config import RunConfig
from kvviz.records import Request


class Texts:
    """A serial number for each token and all that stands before it.

    Two requests have the same serial at a position when their tokens agree up to there, and only
    then: a slot that is shared rightly reads right for both, and a stale one for nobody.
    """

    def __init__(self) -> None:
        self.before: list[int] = []  # by serial: that of the token before it, or -1
        self._serial: dict[tuple, int] = {}
        self._lines: dict[int, list[int]] = {}

    def serials(self, request: Request, count: int) -> list[int]:
        """Of the first `count` tokens."""
        line = self._lines.setdefault(request.id, [])
        names = _names(request)
        while len(line) < count:
            before = line[-1] if line else -1
            made = len(line) - len(names)
            name = names[len(line)] if made < 0 else ("made", request.id, made)
            serial = self._serial.setdefault((before, name), len(self._serial))
            if serial == len(self.before):
                self.before.append(before)
            line.append(serial)
        return line[:count]


def _names(request: Request) -> list[tuple]:
    """Names of the prompt's tokens: equal names stand for equal tokens."""
    shared = [("shared", key, n) for key, length in request.shared for n in range(length)]
    shared = shared[: request.prompt_len]
    own = range(request.prompt_len - len(shared))
    return shared + [("own", request.text, request.prompt_len, n) for n in own]


@dataclass
class Served:
    """`done[r]`: tokens of request r whose values are in the tensors."""

    layout: Layout
    config: RunConfig
    live: dict[int, Request] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)
    texts: Texts = field(default_factory=Texts)

    def serials(self, request_id: int, count: int) -> list[int]:
        return self.texts.serials(self.live[request_id], count)

    def owners(self) -> np.ndarray:
        """Owner of every slot, by the columns."""
        columns = self.layout.columns()
        return np.repeat(columns.owner, columns.size)

    def refs(self) -> np.ndarray:
        columns = self.layout.columns()
        return np.repeat(columns.refs, columns.size)

    def addresses(self, request_id: int, count: int) -> np.ndarray:
        """Where the model reads and writes the first tokens: by the table's own definition."""
        table = self.layout.table
        line = table.array[table.row(request_id)].astype(np.int64)
        at = np.arange(count)
        return line[at // table.piece] + at % table.piece
