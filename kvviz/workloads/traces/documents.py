"""Files that are one piece of JSON: lists of lengths, and the results of serving benchmarks.

A list may hold objects (`[{"prompt_len": 12, "output_len": 34}, ...]`), pairs (prompt, output) or
triples (arrival in s or a text that is passed over, prompt, output); an object may hold the columns
as lists. vLLM's `bench serve --save-detailed` writes `input_lens`, `output_lens` and, lately,
`start_times` and `errors`.
"""

from __future__ import annotations

import json
import re
from typing import Any

from kvviz.errors import TraceError
from kvviz.workloads.traces import servegen
from kvviz.workloads.traces.columns import columns_of, shown
from kvviz.workloads.traces.jsonl import NO_KEYS, NO_OBJECT, _add
from kvviz.workloads.traces.rows import Rows
from kvviz.workloads.traces.source import Lines
from kvviz.workloads.traces.trace import Trace

FAILED = "the benchmark reports an error for it"
_BLANK = re.compile(r"\s*")


def read_document(lines: Lines, unit: str | None = None) -> Trace:
    """Rows are counted by their place in the list, from 1. Raises TraceError."""
    document = parse(lines)
    if isinstance(document, dict):
        if servegen.is_lengths(document):
            return servegen.lengths_only(document)
        if is_benchmark(document):
            return _benchmark(document)
        return _columns(document, unit)
    if not isinstance(document, list) or not document:
        raise TraceError("JSON with no list of requests in it.")
    return _list(document, unit)


def is_benchmark(document: dict[str, Any]) -> bool:
    """The result of a serving benchmark, with its requests or without."""
    return "input_lens" in document or "request_throughput" in document


def parse(lines: Lines) -> Any:
    """One value, or several one after the other as a list. Raises TraceError."""
    begin = lines.number + 1
    text = lines.rest()
    decoder, values = json.JSONDecoder(), []
    at = _behind_blanks(text, 0)
    try:
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            values.append(value)
            at = _behind_blanks(text, at)
    except json.JSONDecodeError as error:
        raise TraceError(
            f"no JSON: {error.msg}, line {begin + error.lineno - 1:,}, column {error.colno}."
        ) from error
    except (RecursionError, ValueError) as error:
        raise TraceError("JSON that is nested too deep or has a number too long.") from error
    return values[0] if len(values) == 1 else values


def _behind_blanks(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _list(values: list[Any], unit: str | None) -> Trace:
    first = values[0]
    if isinstance(first, dict):
        if "conversations" in first:
            raise TraceError(
                "ShareGPT conversations are text, and tokens can't be counted without a "
                "tokenizer. Give a list of lengths: "
                '[{"prompt_len": 12, "output_len": 34}, ...].'
            )
        if "input_lens" in first:
            return _benchmark(_joined(values))
        columns = columns_of(list(first), unit)
        rows = Rows(columns.format, columns.unit, columns.block if columns.hashes else 0)
        for place, value in enumerate(values, 1):
            if isinstance(value, dict):
                _add(rows, columns, place, value)
            else:
                rows.aside(place, "", NO_OBJECT)
    elif isinstance(first, list) and len(first) in (2, 3):
        rows = Rows("lengths", unit)
        for place, value in enumerate(values, 1):
            if isinstance(value, list) and len(value) == len(first):
                _add_list(rows, place, value)
            else:
                rows.aside(place, "", NO_KEYS)
    else:
        raise TraceError(
            "a JSON list was found, but its members are no requests: objects with lengths, or "
            "[prompt, output] pairs were expected."
        )
    if rows.format == "plain":
        rows.format = "lengths"
    rows.notes.append("Rows are counted by their place in the list.")
    return rows.trace()


def _add_list(rows: Rows, place: int, value: list[Any]) -> None:
    arrival = value[0] if len(value) == 3 and not isinstance(value[0], str) else None
    rows.add(place, arrival, *value[-2:])


def _columns(document: dict[str, Any], unit: str | None) -> Trace:
    """Columns as lists, or the one list that an object wraps."""
    lists = {name: value for name, value in document.items() if isinstance(value, list)}
    if len(lists) == 1 and (inner := next(iter(lists.values()))):
        return _list(inner, unit)
    if not lists:
        return _list([document], unit)
    columns = columns_of(list(lists), unit)
    arrivals = lists[columns.arrival] if columns.arrival else None
    rows = Rows("lengths", columns.unit)
    _zip(rows, lists[columns.prompt], lists[columns.output], arrivals)
    return rows.trace()


def _benchmark(document: dict[str, Any]) -> Trace:
    prompts, outputs = document.get("input_lens"), document.get("output_lens")
    if not isinstance(prompts, list) or not isinstance(outputs, list):
        raise TraceError(
            "a benchmark's totals without its requests. Run it with --save-result "
            f"--save-detailed. Seen: {shown(list(document))}."
        )
    starts, errors = document.get("start_times"), document.get("errors")
    rows = Rows("vllm-bench", "s")
    _zip(
        rows,
        prompts,
        outputs,
        starts if isinstance(starts, list) else None,
        errors if isinstance(errors, list) else None,
    )
    rows.notes.append("Rows are counted by their place in the lists.")
    trace = rows.trace()
    if trace.arrival_s is None:
        return trace
    return trace.noted(
        "Start times are those of a monotonic clock and are counted from the first one.",
        arrival_s=trace.arrival_s - trace.arrival_s[0],
    )


def _zip(
    rows: Rows,
    prompts: list[Any],
    outputs: list[Any],
    arrivals: list[Any] | None,
    errors: list[Any] | None = None,
) -> None:
    lengths = {len(column) for column in (prompts, outputs, arrivals) if column is not None}
    if len(lengths) != 1:
        found = ", ".join(f"{n:,}" for n in sorted(lengths))
        raise TraceError(f"lists of different lengths ({found}): one entry a request was expected.")
    for index, (prompt, output) in enumerate(zip(prompts, outputs, strict=True)):
        if errors and index < len(errors) and errors[index]:
            rows.aside(index + 1, "errors", FAILED)
            continue
        rows.add(index + 1, arrivals[index] if arrivals else None, prompt, output)


def _joined(results: list[Any]) -> dict[str, Any]:
    """Results of several runs as one: their clocks have nothing in common, so no start times."""
    names = ("input_lens", "output_lens", "errors")
    joined: dict[str, Any] = {name: [] for name in names}
    for place, result in enumerate(results, 1):
        columns = [result.get(name) or [] for name in names] if isinstance(result, dict) else []
        if not columns or not all(isinstance(column, list) for column in columns):
            raise TraceError(f"result {place:,} of {len(results):,} is no result of a benchmark.")
        inputs, outputs, errors = columns
        joined["input_lens"] += inputs
        joined["output_lens"] += outputs
        joined["errors"] += [*errors, *[""] * (len(inputs) - len(errors))]
    return joined
