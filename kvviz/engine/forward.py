"""What an engine asks of a model, and the answer without one.

`forward(batch, journal)` carries out the journal (moves and frees, in order), writes K and V of
the batch's tokens, and returns a token for each row that completes its sequence. The real one is
`model.forward.ModelForward`; Dry answers zeros and touches no memory.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from kvviz.caches.layout import Journal
from kvviz.records import Request


class Chunk(NamedTuple):
    """Write tokens [start, start + count) of a request; `samples`: then sample the next one."""

    request: Request
    start: int
    count: int
    samples: bool


class Forward(Protocol):
    """`end_tokens`: those by which the model ends its own text."""

    end_tokens: frozenset[int]

    def __call__(self, batch: list[Chunk], journal: Journal) -> np.ndarray:
        """Tokens int [chunks that sample], in the order of the batch."""

    def finish(self, request_id: int) -> bytes | None:
        """The request is done: its generated tokens, or None when dry.

        2 bytes a token, 4 where the vocabulary has more than 65,536.
        """

    def forget(self, request_id: int) -> None:
        """The request was turned away for good."""

    def check(self) -> bool | None:
        """Does the map rebuilt from the tensors equal the bookkeeping? None: no tensors."""

    @property
    def move_seconds(self) -> float:
        """Time spent on copying slots so far."""

    def close(self) -> None:
        """Give the memory back. May be called twice."""


class DryForward:
    """No model, no tensors: a zero for each token asked for."""

    move_seconds = 0.0
    end_tokens: frozenset[int] = frozenset()

    def __call__(self, batch: list[Chunk], journal: Journal) -> np.ndarray:
        return np.zeros(sum(chunk.samples for chunk in batch), np.int64)

    def finish(self, request_id: int) -> None:
        return None

    def forget(self, request_id: int) -> None:
        pass

    def check(self) -> None:
        return None

    def close(self) -> None:
        pass
