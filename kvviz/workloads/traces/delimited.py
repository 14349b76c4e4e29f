"""CSV and its relatives: comma, semicolon, tab or bar, with a header; read row by row."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from kvviz.errors import TraceError
from kvviz.workloads.traces.columns import Columns, columns_of
from kvviz.workloads.traces.rows import Rows
from kvviz.workloads.traces.source import MAX_LINE, OVERLONG, Lines
from kvviz.workloads.traces.trace import Trace

SHORT = "row has fewer fields than the header"
REPEATED = "the header once more"
QUOTES = "a field longer than 131,072 characters: a quote that never closes?"
_DELIMITERS = ",;\t|"


def read_delimited(lines: Lines, unit: str | None = None) -> Trace:
    """A file with a header. Raises TraceError if the header names no tokens or no row is usable."""
    head = lines.peek()
    delimiter = max(_DELIMITERS, key=head.count)
    feed = _Feed(lines)
    reader = csv.reader(feed, delimiter=delimiter, skipinitialspace=True)
    header = _header(reader)
    columns = columns_of(header, unit)
    rows = Rows(columns.format, columns.unit)
    feed.rows = rows
    _read(reader, feed, header, columns, rows)
    if columns.format == "azure":
        rows.format = "azure-2024" if rows.clock.zoned else "azure-2023"
    rows.notes.insert(0, _used(columns))
    return rows.trace()


class _Feed:
    """Lines for the csv reader; overlong ones are set aside instead."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self.rows: Rows | None = None

    @property
    def line(self) -> int:
        return self._lines.number

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while (line := self._lines.next()) is not None:
            if len(line) <= MAX_LINE:
                return line
            if self.rows is not None:
                self.rows.aside(self._lines.number, "", OVERLONG)
        raise StopIteration


def _header(reader: Iterator[list[str]]) -> list[str]:
    try:
        return [name.strip() for name in next(reader)]
    except (StopIteration, csv.Error) as error:
        raise TraceError(
            "the first line is too long for a header: names of columns were expected."
        ) from error


def _read(
    reader: Iterator[list[str]], feed: _Feed, header: list[str], columns: Columns, rows: Rows
) -> None:
    prompt, output = header.index(columns.prompt), header.index(columns.output)
    arrival = None if columns.arrival is None else header.index(columns.arrival)
    needed = max(prompt, output, arrival or 0) + 1
    add = rows.add
    while True:
        begin = feed.line + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error:
            rows.aside(begin, "", QUOTES)
            continue
        if len(fields) >= needed:
            if fields[prompt] == columns.prompt:
                rows.aside(begin, "", REPEATED)
                continue
            stamp = None if arrival is None else fields[arrival].strip()
            add(begin, stamp, fields[prompt], fields[output])
        elif any(field.strip() for field in fields):
            rows.aside(begin, "", SHORT)


def _used(columns: Columns) -> str:
    arrival = f"arrivals from {columns.arrival!r}, " if columns.arrival else ""
    return f"Read {arrival}prompts from {columns.prompt!r}, outputs from {columns.output!r}."
