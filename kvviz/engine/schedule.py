"""What a step writes, as the scheduler decides it and as the model takes it."""

from __future__ import annotations

from typing import NamedTuple

from kvviz.engine.forward import Chunk
from kvviz.engine.sequence import Sequence

Row = tuple[Sequence, int]  # and how many of its tokens are written


class Schedule(NamedTuple):
    """What a step writes: first one token each of the `oldest`, who generate and begin no
    samples, then the `rows`."""

    oldest: list[Sequence]
    rows: list[Row]

    def all_rows(self) -> list[Row]:
        return [(sequence, 1) for sequence in self.oldest] + self.rows


def chunks(rows: list[Row]) -> list[Chunk]:
    """The batch of a schedule: what to write, and how many tokens each row yields."""
    return [
        Chunk(s.request, s.written, count, _yields(s) if count == s.pending else 0)
        for s, count in rows
    ]


def _yields(sequence: Sequence) -> int:
    return sequence.request.samples if sequence.forks else 1
