"""A batch as flat columns: one row for each token to write."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz.caches.layout import AddressTable
from kvviz.engine.forward import Chunk
from kvviz.records import SIBLINGS


@dataclass(frozen=True)
class Rows:
    """tokens, requests, positions, lines (of the address table), slots: [rows]; `last`: the
    rows that yield a token, `drawn`: the request that each token is for (a row may yield the
    first token of several samples)."""

    tokens: np.ndarray
    requests: np.ndarray
    positions: np.ndarray
    lines: np.ndarray
    slots: np.ndarray
    last: np.ndarray
    drawn: np.ndarray


def flatten(batch: list[Chunk], table: AddressTable, known: dict[int, np.ndarray]) -> Rows:
    """`known[id]` holds a request's tokens so far, int32."""
    counts = np.array([c.length for c in batch])
    ends = np.cumsum(counts)
    starts = np.array([c.start for c in batch])
    positions = np.arange(ends[-1]) + np.repeat(starts - (ends - counts), counts)
    ids = np.array([c.request.id for c in batch])
    lines = np.repeat(np.array([table.row(c.request.id) for c in batch]), counts)
    tokens = np.concatenate([known[c.request.id][c.start : c.start + c.length] for c in batch])
    slots = table.array[lines, positions // table.piece] + positions % table.piece
    samples = np.array([c.samples for c in batch])
    last = np.repeat(ends - 1, samples)
    nth = np.arange(len(last)) - np.repeat(np.cumsum(samples) - samples, samples)
    drawn = np.repeat(ids, samples) + nth * SIBLINGS
    return Rows(tokens, np.repeat(ids, counts), positions, lines, slots, last, drawn)
