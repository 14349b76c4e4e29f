"""JSON lines: one object a request. A line that is no JSON is set aside, and reading goes on."""

from __future__ import annotations

import json
from typing import Any

from kvviz.errors import TraceError
from kvviz.workloads.traces.columns import Columns, columns_of
from kvviz.workloads.traces.rows import Rows
from kvviz.workloads.traces.source import MAX_LINE, OVERLONG, Lines
from kvviz.workloads.traces.trace import Trace

NO_OBJECT = "no object in braces"
NO_KEYS = "object without the keys of the others"
_decode = json.JSONDecoder().decode


def read_jsonl(lines: Lines, unit: str | None = None) -> Trace:
    """The first object decides the format. Raises TraceError if its keys name no tokens, or no
    row is usable."""
    before: list[tuple[int, str]] = []
    rows: Rows | None = None
    columns: Columns | None = None
    while (line := lines.next()) is not None:
        if not line.strip():
            continue
        found = _object(line)
        if isinstance(found, dict) and rows is None:
            columns = columns_of(list(found), unit)
            rows = Rows(columns.format, columns.unit, columns.block if columns.hashes else 0)
            for number, reason in before:
                rows.aside(number, "", reason)
        if rows is None:
            before.append((lines.number, str(found)))
        elif isinstance(found, str):
            rows.aside(lines.number, "", found)
        else:
            assert columns is not None
            _add(rows, columns, lines.number, found)
        if rows is None and len(before) > 1000:
            break
    if rows is None:
        number, reason = before[0]
        raise TraceError(f"JSON lines without one readable object. Line {number:,}: {reason}.")
    return rows.trace()


def _object(line: str) -> dict[str, Any] | str:
    """The object, or why there is none."""
    if len(line) > MAX_LINE:
        return OVERLONG
    try:
        found = _decode(line)
    except json.JSONDecodeError as error:
        return f"no JSON: {error.msg[:1].lower()}{error.msg[1:]}, column {error.colno}"
    except (RecursionError, ValueError):  # nested too deep; a number of thousands of digits
        return "JSON that can't be read"
    return found if isinstance(found, dict) else NO_OBJECT


def _add(rows: Rows, columns: Columns, line: int, found: dict[str, Any]) -> None:
    try:
        prompt, output = found[columns.prompt], found[columns.output]
    except KeyError:
        rows.aside(line, "", NO_KEYS)
        return
    arrival = found.get(columns.arrival) if columns.arrival else None
    ids = found.get(columns.hashes) if columns.hashes else None
    rows.add(line, arrival, prompt, output, ids)
