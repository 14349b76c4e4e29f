"""The report's text: tables and lists that need no script. Everything from outside is escaped
here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from kvviz.config import RunConfig
from kvviz.recording.recording import Recording
from kvviz.records import Event
from kvviz.report import run_rows

EVENTS_SHOWN = 200
WORDS = {
    "slot": "room for one token's K and V in all layers: 2 * L * H_kv * d_h * s bytes",
    "need": "slots asked for. A finished request holds prompt + output - 1 slots: its last token "
    "is never written",
    "free, F": "the sum of all holes, h",
    "admissible": "the largest request that finds a place now: the largest hole, max h, or all "
    "free blocks",
    "fragmented": "a verdict: free >= need, but no hole holds it. A false refusal",
    "capacity": "a verdict: need > free",
    "queued": "a verdict: it would fit, but stands behind a head that does not",
    "never": "a verdict: need > pool",
    "reservation": "slots asked for at admission: oracle (true length), pow2 (output rounded "
    "up), max (whole context), exact (grow as tokens come)",
    "lane": "one engine with one KV cache; lanes share the clock, the requests and the weights",
}


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Cells are text; the first of a row is its heading."""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        + "</tr>"
        for first, *rest in rows
    )
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def summary(recording: Recording) -> str:
    """The whole run in numbers, a column a lane."""
    return table(["", *recording.lanes], run_rows(recording.manifest.report, recording.lanes))


def numbers(groups: Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]) -> str:
    """Every number of one step: a row a lane, with its formula. `data-at` lets the slider find
    it: [group, row, lane]."""
    parts = []
    for group, rows in groups.items():
        body = "".join(
            _number(group, row, lane, cell, first=at == 0, of=len(cells))
            for row, cells in rows.items()
            for at, (lane, cell) in enumerate(cells.items())
        )
        heads = "".join(
            f'<th scope="col">{name}</th>'
            for name in ("number", "lane", "value", "formula", "source, note")
        )
        parts.append(
            f'<h3>{escape(group)}</h3><div class="scroll"><table class="numbers"><thead><tr>'
            f"{heads}</tr></thead><tbody>{body}</tbody></table></div>"
        )
    return "".join(parts)


def _number(
    group: str, row: str, lane: str, cell: Mapping[str, Any], *, first: bool, of: int
) -> str:
    heading = f'<th scope="rowgroup" rowspan="{of}">{escape(row)}</th>' if first else ""
    note = cell["source"] + (f". {cell['note']}" if cell["note"] else "")
    at = escape("\t".join((group, row, lane)))
    return (
        f'<tr data-at="{at}" data-kind="{escape(cell["kind"])}">{heading}<td>{escape(lane)}</td>'
        f'<td class="value">{escape(cell["value"])}</td><td>{escape(cell["formula"])}</td>'
        f"<td>{escape(note)}</td></tr>"
    )


def settings(config: RunConfig) -> str:
    """All settings; those that differ from the defaults come first, and are marked."""
    rows = [
        (path, str(value), str(default), meta["help"])
        for (path, value, meta), (_, default, _) in zip(
            config.walk(), RunConfig().walk(), strict=True
        )
    ]
    changed = [row for row in rows if row[1] != row[2]]
    same = [row for row in rows if row[1] == row[2]]
    head = ["setting", "value", "default", "what it is"]
    return (
        table(head, changed, "wide")
        + f"<details><summary>{len(same)} settings at their defaults</summary>"
        + table(head, same, "wide")
        + "</details>"
    )


def events(recording: Recording) -> str:
    """The first events of all lanes, in the order of their steps."""
    found: list[tuple[str, Event]] = sorted(
        ((lane, event) for lane in recording.lanes for event in recording.events(lane)),
        key=lambda pair: pair[1].step,
    )
    rows = [
        (
            f"{e.step:,}", lane, e.kind, "" if e.request < 0 else f"{e.request:,}", e.verdict,
            *("" if not n else f"{n:,}" for n in (e.need, e.free, e.largest, e.slots)), e.text,
        )
        for lane, e in found[:EVENTS_SHOWN]
    ]  # fmt: skip
    head = [
        "step", "lane", "event", "request", "verdict", "need", "free", "largest hole", "slots",
        "text",
    ]  # fmt: skip
    note = f"The first {len(rows):,} of {len(found):,} events"
    return f"<details><summary>{note}</summary>{table(head, rows, 'events')}</details>"


def words() -> str:
    terms = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in WORDS.items())
    return f"<dl>{terms}</dl>"
