"""The door: any file of requests to a `Trace`. The format is found from what is in the file."""

from __future__ import annotations

import json
from pathlib import Path

from kvviz.errors import TraceError
from kvviz.workloads.traces import servegen
from kvviz.workloads.traces.clock import PER_SECOND
from kvviz.workloads.traces.delimited import read_delimited
from kvviz.workloads.traces.documents import is_benchmark, parse, read_document
from kvviz.workloads.traces.jsonl import read_jsonl
from kvviz.workloads.traces.source import MAX_BYTES, Lines, Source
from kvviz.workloads.traces.trace import Trace

FORMATS = {
    "azure-2023": "Azure LLM inference 2023, CSV",
    "azure-2024": "Azure LLM inference 2024, CSV",
    "azure-2025": "Azure LLM inference 2025 (multimodal), CSV",
    "burstgpt": "BurstGPT, CSV",
    "mooncake": "Mooncake, JSON lines with hash ids of 512 tokens",
    "bailian": "Qwen-Bailian, JSON lines with hash ids of 16 tokens",
    "vidur": "vidur, CSV (Splitwise, arXiv, ShareGPT)",
    "apex": "APEX+, JSON lines",
    "llmservingsim": "LLMServingSim, JSON lines",
    "vtc": "VTC (Chatbot Arena), CSV",
    "servegen": "ServeGen client: trace.csv and dataset.json",
    "vllm-bench": "result of vLLM's or SGLang's serving benchmark, JSON",
    "lengths": "list of lengths, JSON",
    "plain": "any CSV or JSON lines with named columns",
}


def read_trace(
    source: Source,
    *,
    companion: Source | None = None,
    unit: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Trace:
    """Read a file (path, bytes or open binary file; gzip is unpacked).

    `companion` is the other half of a ServeGen client; for a path it is looked for beside it.
    `unit` (s, ms, us, ns) overrules the format's unit of time. Raises TraceError, which says what
    was seen and what was expected.
    """
    if unit is not None and unit not in PER_SECOND:
        raise TraceError(f"unit {unit!r}: one of {', '.join(PER_SECOND)} was expected.")
    if companion is None and isinstance(source, str | Path):
        companion = _beside(Path(source))
    with Lines(source, max_bytes) as lines:
        first = lines.peek()
        if not first:
            raise TraceError("the file is empty.")
        if servegen.is_rates(first):
            return _servegen(servegen.read_rates(lines), companion)
        start = first.lstrip()[0]
        if start == "{" and _is_line_of_many(first):
            return read_jsonl(lines, unit)
        if start not in "{[":
            return read_delimited(lines, unit)
        if companion is not None:
            return _servegen_or_other(lines, companion, unit)
        return read_document(lines, unit)


def _is_line_of_many(line: str) -> bool:
    """An object that ends with its line and holds no columns: one of JSON lines."""
    if not line.rstrip().endswith("}"):
        return False
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return True
    columns = [v for k, v in found.items() if isinstance(v, list) and not _one_request(k)]
    return not columns and not is_benchmark(found) and not servegen.is_lengths(found)


def _one_request(key: str) -> bool:
    """Lists that a single request may hold."""
    return "id" in key.lower() or "message" in key.lower()


def _servegen(windows: list[servegen.Window], companion: Source | None) -> Trace:
    if companion is None:
        raise TraceError(
            "servegen: this half of a client has its rates only. Give its dataset.json "
            "(chunk-N-dataset.json) too."
        )
    with Lines(companion) as lines:
        document = parse(lines)
    if not isinstance(document, dict) or not servegen.is_lengths(document):
        raise TraceError("servegen: the second file is no dataset.json of a client.")
    return servegen.read_client(windows, document)


def _servegen_or_other(lines: Lines, companion: Source, unit: str | None) -> Trace:
    with Lines(companion) as other:
        if not servegen.is_rates(other.peek()):
            return read_document(lines, unit)
        document = parse(lines)
        if not isinstance(document, dict) or not servegen.is_lengths(document):
            raise TraceError("servegen: the first file is no dataset.json of a client.")
        return servegen.read_client(servegen.read_rates(other), document)


def _beside(path: Path) -> Path | None:
    """The other half of a ServeGen client, if it lies where ServeGen puts it."""
    for mine, other in (("-trace.csv", "-dataset.json"), ("-dataset.json", "-trace.csv")):
        if path.name.endswith(mine):
            found = path.with_name(path.name.removesuffix(mine) + other)
            return found if found.is_file() else None
    return None
