"""The arguments of `torch.nn.attention.varlen.varlen_attn`, built from a batch and its addresses.

    contiguous   pool  | ...AAAA.BBBBBB...CC.. |      keys: the whole pool [slots, H_kv, d_h]
                 cu_seq_k    ^    ^        ^          where each region begins, in rising order
                 seqused_k   4    6        2          tokens of it that are written
    paged        keys: the pool as [blocks, block, H_kv, d_h], and `block_table` [n, blocks]
    packed       keys: a copy of all that is read, `slots` says from which

All is int32 but `slots`, which is int64 as torch wants it for gathering. No torch here.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kvviz.caches.layout import AddressTable
from kvviz.model.rows import Rows


class Varlen(NamedTuple):
    """For n sequences: cu_seq_q, cu_seq_k [n + 1], seqused_k [n]; block_table [n, blocks] for
    blocks, slots [keys] for a packed copy; the longest of each kind."""

    cu_seq_q: np.ndarray
    cu_seq_k: np.ndarray
    seqused_k: np.ndarray
    max_q: int
    max_k: int
    block_table: np.ndarray | None = None
    slots: np.ndarray | None = None


def bounds(rows: Rows) -> np.ndarray:
    """First row of each sequence, and the number of rows: int64 [n + 1]."""
    cuts = np.flatnonzero(np.diff(rows.requests)) + 1
    return np.concatenate(([0], cuts, [len(rows.requests)]))


def by_address(rows: Rows, table: AddressTable) -> Rows:
    """The same batch, its sequences in the order of their regions; results keep their order."""
    at = bounds(rows)
    order = np.argsort(table.array[rows.lines[at[:-1]], 0], kind="stable")
    if (np.diff(order) == 1).all():
        return rows
    moved = np.concatenate([np.arange(at[i], at[i + 1]) for i in order])
    place = np.empty_like(moved)
    place[moved] = np.arange(len(moved))
    columns = {
        name: getattr(rows, name)[moved]
        for name in ("tokens", "requests", "positions", "lines", "slots")
    }
    return replace(rows, **columns, last=place[rows.last])


def of_regions(rows: Rows, table: AddressTable) -> Varlen:
    """Contiguous regions in place; `rows` come from `by_address`."""
    at, lengths = _lengths(rows)
    starts = table.array[rows.lines[at[:-1]], 0]
    assert (np.diff(starts) >= 0).all(), f"regions at {starts.tolist()} are not in order"
    return _made(at, [*starts, starts[-1] + lengths[-1]], lengths)


def of_blocks(rows: Rows, table: AddressTable, width: int = 0) -> Varlen:
    """Blocks in place. The table has `width` blocks a sequence, or as many as the longest needs."""
    at, lengths = _lengths(rows)
    needed = -(-int(lengths.max()) // table.piece)
    ids = np.zeros((len(lengths), width or needed), np.int32)
    ids[:, :needed] = table.array[rows.lines[at[:-1]], :needed] // table.piece
    # What lies behind a sequence's last block in its row is an older owner's
    ids[np.arange(ids.shape[1]) * table.piece >= lengths[:, None]] = 0
    return _made(at, [0, *np.cumsum(lengths)], lengths)._replace(block_table=ids)


def packed(rows: Rows, table: AddressTable, keys: int = 0) -> Varlen:
    """A copy of all keys, one sequence behind the other; filled up to `keys` with the first one
    (never with a slot that nobody has written: it may hold NaN)."""
    at, lengths = _lengths(rows)
    slots = np.concatenate(
        [
            slots_of(table, line, int(length))
            for line, length in zip(rows.lines[at[:-1]], lengths, strict=True)
        ]
    )
    rest = np.full(max(0, keys - len(slots)), slots[0])
    slots = np.concatenate([slots, rest])
    return _made(at, [0, *np.cumsum(lengths)], lengths)._replace(slots=slots)


def slots_of(table: AddressTable, line: int, length: int) -> np.ndarray:
    """Slots int64 [length] of the first tokens of a sequence."""
    token = np.arange(length)
    return table.array[line, token // table.piece].astype(np.int64) + token % table.piece


def sequences(rows: Rows) -> list[tuple[int, int, int]]:
    """(first row, end row, tokens in the cache) of each sequence."""
    at, lengths = _lengths(rows)
    return [
        (begin, end, length)
        for (begin, end), length in zip(
            itertools.pairwise(at.tolist()), lengths.tolist(), strict=True
        )
    ]


def _lengths(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """(bounds, tokens in the cache once the rows are written)"""
    at = bounds(rows)
    return at, rows.positions[at[1:] - 1] + 1


def _made(at: np.ndarray, starts: list | np.ndarray, lengths: np.ndarray) -> Varlen:
    return Varlen(
        at.astype(np.int32),
        np.asarray(starts, np.int32),
        lengths.astype(np.int32),
        int(np.diff(at).max()),
        int(lengths.max()),
    )
