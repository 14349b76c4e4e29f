"""Columns to Parquet and back. The only module here that knows pyarrow, which it loads when it
is used."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from kvviz.errors import RecordingError
from kvviz.recording.schema import EXTRA, FLAG, INT, LONG, REAL, WORD

Table = dict[str, Any]  # column name -> array, or a list of str

_FLUSH_ROWS = 1 << 17
_WIDTH = {INT: 8, LONG: 8, REAL: 8, FLAG: 1, WORD: 8}  # bytes a value in memory
_LONGEST_WORD = 4096  # characters
_NUMPY = {INT: np.int32, LONG: np.int64, REAL: np.float64, FLAG: np.bool_}


class TableWriter:
    """Takes rows piece by piece and keeps them packed: zstd over dictionaries."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._columns = dict(columns)
        self._pending: list[Mapping[str, Any]] = []
        self._waiting = 0
        self._sink = io.BytesIO()
        self._writer: Any = None

    def add(self, **columns: Any) -> None:
        """Arrays, or lists, of one length."""
        self._pending.append(columns)
        self._waiting += len(next(iter(columns.values())))
        if self._waiting >= _FLUSH_ROWS:
            self._flush()

    def close(self) -> bytes:
        """The whole table as a Parquet file."""
        self._flush()
        self._writer.close()
        return self._sink.getvalue()

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = {name: getattr(pa, _arrow(kind))() for name, kind in self._columns.items()}
        schema = pa.schema(list(kinds.items()))
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._sink, schema, compression="zstd", compression_level=9, version="2.6",
                use_dictionary=True, write_statistics=False, store_schema=False,
            )  # fmt: skip
        if self._waiting:
            arrays = [
                pa.array(_joined([piece[name] for piece in self._pending], kind), kinds[name])
                for name, kind in self._columns.items()
            ]
            self._writer.write_table(pa.table(arrays, schema=schema), row_group_size=_FLUSH_ROWS)
        self._pending, self._waiting = [], 0


def write_table(columns: Mapping[str, str], table: Mapping[str, Any]) -> bytes:
    writer = TableWriter(columns)
    writer.add(**table)
    return writer.close()


def read_table(data: bytes, columns: Mapping[str, str], name: str, budget: int) -> Table:
    """The columns asked for, and any whose name begins with `EXTRA`. Columns that are unknown
    are left alone; those that the file lacks are missing from the result.

    Raises RecordingError when the values would take more than `budget` bytes. Whatever the
    parser makes of a damaged table is the caller's to catch.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(
        pa.BufferReader(data),
        thrift_string_size_limit=1 << 24,
        thrift_container_size_limit=1 << 20,
        # Packed as it is, a word that stands in a million rows is kept once
        read_dictionary=[column for column, kind in columns.items() if kind == WORD],
    )
    schema = file.schema_arrow
    wanted = {c: kind for c, kind in columns.items() if c in schema.names}
    wanted |= {c: REAL for c in schema.names if c.startswith(EXTRA)}
    rows = file.metadata.num_rows
    size = max(rows * bytes_a_row(wanted), *(_unpacked(file.metadata)), 0)
    if not 0 <= size <= budget:
        raise RecordingError(
            f"{name} would unpack to {size >> 20:,} MiB, more than the {budget >> 20:,} MiB that "
            "are left for it. Record every n-th step only (--record-every)."
        )
    for column, kind in wanted.items():
        expected = getattr(pa, _arrow(kind))()
        if kind == WORD:
            expected = pa.dictionary(pa.int32(), expected)
        if schema.field(column).type != expected:
            raise ValueError(f"{name}: {column} is no {kind}")
    table = file.read(columns=list(wanted))
    return {column: _values(table.column(column), kind) for column, kind in wanted.items()}


def bytes_a_row(columns: Mapping[str, str]) -> int:
    return sum(_WIDTH[kind] for kind in columns.values())


def _unpacked(metadata: Any) -> Iterable[int]:
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    return [sum(group.total_byte_size for group in groups), 0]


def _values(column: Any, kind: str) -> Any:
    if column.null_count:
        raise ValueError("a value is missing")
    if kind == WORD:
        return [word for chunk in column.chunks for word in _words(chunk)]
    values = column.to_numpy()
    return values if kind in (REAL, FLAG) else values.astype(np.int64)


def _words(chunk: Any) -> list[str]:
    """Equal words are one object."""
    known = chunk.dictionary.to_pylist()
    if any(word is None or len(word) > _LONGEST_WORD for word in known):
        raise ValueError(f"a text is missing or has more than {_LONGEST_WORD:,} characters")
    return [known[i] for i in chunk.indices.to_pylist()]


def _joined(pieces: list[Any], kind: str) -> Any:
    if kind == WORD:
        return [word for piece in pieces for word in piece]
    return np.concatenate([np.asarray(piece, _NUMPY[kind]) for piece in pieces])


def _arrow(kind: str) -> str:
    return {FLAG: "bool_"}.get(kind, kind)
