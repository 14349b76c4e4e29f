"""What an engine asks of a model, and the answer without one.

`forward(batch, journal)` carries out the journal (moves and frees, in order), writes K and V of
the batch's tokens, and returns a token for each row that completes its sequence. The real one is
`model.forward.ModelForward`; Dry answers zeros and touches no memory.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

import numpy as np

from kvviz.caches.layout import Journal
from kvviz.records import Request


class Chunk(NamedTuple):
    """Write tokens [start, start + length) of a request, then draw `samples` next tokens: none in
    the middle of a prompt, one as a rule; more begin the request's siblings, in their order.
    """

    request: Request
    start: int
    length: int
    samples: int


def cut(batch: list[Chunk], parts: list[int]) -> list[list[Chunk]]:
    """The batch in parts of so many tokens each; a chunk may be cut, and then samples in the
    part that holds its last token."""
    assert sum(parts) == sum(chunk.length for chunk in batch), f"{parts} do not cover the batch"
    batches: list[list[Chunk]] = []
    rest = deque(batch)
    for room in parts:
        batches.append([])
        while room:
            chunk = rest.popleft()
            if chunk.length > room:
                rest.appendleft(
                    chunk._replace(start=chunk.start + room, length=chunk.length - room)
                )
                chunk = chunk._replace(length=room, samples=0)
            batches[-1].append(chunk)
            room -= chunk.length
    return batches


class Forward(Protocol):
    """`end_tokens`: those by which the model ends its own text; `attention`: how it reads its
    cache, and why not in place where that is so (empty without tensors)."""

    end_tokens: frozenset[int]

    @property
    def attention(self) -> str: ...

    def __call__(self, batch: list[Chunk], journal: Journal) -> np.ndarray:
        """Tokens int [sum of the chunks' samples], in the order of the batch."""

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
    attention = ""
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
