"""The one result of every reader: columns of numbers, and what became of every row."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

LISTED = 10_000  # rows set aside that are kept by line; all of them are counted


@dataclass(frozen=True)
class Aside:
    """One row that was not taken: its line in the file (from 1), the field, and why."""

    line: int
    field: str
    reason: str


@dataclass(frozen=True)
class SetAside:
    """Rows that were not taken: all of them counted by reason, the first `LISTED` listed."""

    by_reason: dict[str, int] = field(default_factory=dict)
    listed: tuple[Aside, ...] = ()

    @property
    def count(self) -> int:
        return sum(self.by_reason.values())

    @property
    def words(self) -> str:
        """How many rows for which reason; empty when there are none."""
        if not self.count:
            return ""
        reasons = "; ".join(f"{count:,} × {why}" for why, count in self.by_reason.items())
        rows = "1 row was" if self.count == 1 else f"{self.count:,} rows were"
        return f"{rows} set aside: {reasons}."

    def csv(self) -> str:
        """The list for download; its last line says so if it is not all of them."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("line", "field", "reason"))
        writer.writerows((row.line, row.field, row.reason) for row in self.listed)
        if len(self.listed) < self.count:
            writer.writerow(("", "", f"first {len(self.listed):,} of {self.count:,} rows listed"))
        return text.getvalue()


@dataclass(frozen=True, eq=False)
class Prefix:
    """Chained block hashes: row k has `ids[offsets[k]:offsets[k + 1]]`, each of `block` tokens
    (the last may be partial). Equal ids mean an equal prefix up to and with that block."""

    ids: np.ndarray  # int64
    offsets: np.ndarray  # int64, rows + 1
    block: int

    def of(self, row: int) -> np.ndarray:
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    def parts(self, row: int, prompt: int, divide: int = 1) -> tuple[tuple[int, int], ...]:
        """(id, tokens) of each hashed piece of this row's prompt of so many tokens, with blocks
        divided; none where a block can't be."""
        block, rest = divmod(self.block, divide)
        if rest:
            return ()
        ids = self.of(row)[: -(-prompt // block)].tolist()
        return tuple((id, min(block, prompt - at * block)) for at, id in enumerate(ids))

    def take(self, rows: np.ndarray, at_most: np.ndarray | None = None) -> Prefix | None:
        """These rows in this order, each cut to its first `at_most` ids; None when none has any."""
        starts, lengths = self.offsets[:-1][rows], np.diff(self.offsets)[rows]
        if at_most is not None:
            lengths = np.minimum(lengths, at_most)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        if not offsets[-1]:
            return None
        inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return Prefix(self.ids[np.repeat(starts, lengths) + inside], offsets, self.block)


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests in order of arrival (of the file, on ties).

    `arrival_s` is in the file's own time (a wall clock starts at 0), or None where the file has no
    arrivals. `units` says what the file's numbers were; `reordered` is the number of rows that
    stood before an earlier one; `notes` are sentences for the page.
    """

    arrival_s: np.ndarray | None  # float64, ascending
    prompt: np.ndarray  # int64, tokens, >= 1
    output: np.ndarray  # int64, tokens, >= 1
    format: str
    units: dict[str, str]
    prefix: Prefix | None = None
    set_aside: SetAside = SetAside()
    reordered: int = 0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        columns = [self.prompt, self.output]
        if self.arrival_s is not None:
            columns.append(self.arrival_s)
        assert len({len(column) for column in columns}) == 1
        if self.prefix is not None:
            assert len(self.prefix.offsets) == len(self.prompt) + 1
            columns += [self.prefix.ids, self.prefix.offsets]
        for column in columns:
            column.flags.writeable = False

    @property
    def rows(self) -> int:
        return len(self.prompt)

    @property
    def prompt_tokens(self) -> int:
        return int(self.prompt.sum())

    @property
    def output_tokens(self) -> int:
        return int(self.output.sum())

    @property
    def span_s(self) -> float | None:
        """From the first arrival to the last."""
        if self.arrival_s is None:
            return None
        return float(self.arrival_s[-1] - self.arrival_s[0])

    def select(self, rows: np.ndarray, note: str) -> Trace:
        """A trace of these rows (ascending indices)."""
        return replace(
            self,
            arrival_s=None if self.arrival_s is None else self.arrival_s[rows],
            prompt=self.prompt[rows],
            output=self.output[rows],
            prefix=None if self.prefix is None else self.prefix.take(rows),
            notes=(*self.notes, note),
        )

    def noted(self, note: str, **changes: Any) -> Trace:
        """A copy with these fields changed, and the sentence that says so."""
        return replace(self, **changes, notes=(*self.notes, note))
