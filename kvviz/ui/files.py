"""Events as files: CSV, JSON lines, Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from kvviz.live.log import COLUMNS

Rows = list[tuple[Any, ...]]


class Writer(NamedTuple):
    media_type: str
    write: Callable[[Rows], bytes]


def as_csv(rows: Rows) -> bytes:
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    writer.writerows(rows)
    return out.getvalue().encode()


def as_jsonl(rows: Rows) -> bytes:
    lines = (json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in rows)
    return "".join(f"{line}\n" for line in lines).encode()


def as_parquet(rows: Rows) -> bytes:
    import pyarrow
    import pyarrow.parquet

    columns = zip(*rows, strict=True) if rows else ((),) * len(COLUMNS)
    words = {"lane", "kind", "verdict", "text"}
    table = pyarrow.table(
        {
            name: pyarrow.array(values, pyarrow.string() if name in words else pyarrow.int64())
            for name, values in zip(COLUMNS, columns, strict=True)
        }
    )
    out = io.BytesIO()
    pyarrow.parquet.write_table(table, out)
    return out.getvalue()


WRITERS = {
    "csv": Writer("text/csv; charset=utf-8", as_csv),
    "jsonl": Writer("application/x-ndjson", as_jsonl),
    "parquet": Writer("application/vnd.apache.parquet", as_parquet),
}
