"""Which columns (or keys) hold what: the format is found from their names, never the file's.

Names are compared without case, spaces and signs: `Request tokens` is `requesttokens`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kvviz.errors import TraceError


@dataclass(frozen=True)
class Columns:
    """Names as they stand in the file. `unit` is of the arrivals; None: the values decide."""

    format: str
    arrival: str | None
    prompt: str
    output: str
    unit: str | None = None
    hashes: str | None = None
    block: int = 0


@dataclass(frozen=True)
class _Known:
    format: str
    arrival: str | None
    prompt: str
    output: str
    unit: str | None = None
    hashes: str | None = None
    block: int = 0
    marks: tuple[str, ...] = ()  # one of these must be there too


# The first that fits is taken: those with marks of their own come before their relatives.
_KNOWN = (
    _Known("azure-2025", "timestamp", "contexttokens", "generatedtokens", marks=("numimages",)),
    _Known("apex", "starttimeoffset", "contexttokens", "generatedtokens", "ns"),
    _Known("azure", "timestamp", "contexttokens", "generatedtokens"),
    _Known("burstgpt", "timestamp", "requesttokens", "responsetokens", "s"),
    _Known(
        "bailian",
        "timestamp",
        "inputlength",
        "outputlength",
        "s",
        "hashids",
        16,
        marks=("chatid", "parentchatid", "turn"),
    ),
    _Known("mooncake", "timestamp", "inputlength", "outputlength", "ms", "hashids", 512),
    _Known("vidur", "arrivedat", "numprefilltokens", "numdecodetokens", "s"),
    _Known("vidur", None, "numprefilltokens", "numdecodetokens"),
    _Known("llmservingsim", "arrivaltimens", "inputtoks", "outputtoks", "ns"),
    _Known("vtc", "reqtime", "promptlen", "outputlen", "s"),
    _Known("mooncake", None, "inputlength", "outputlength", None, "hashids", 512, ("hashids",)),
)
_PROMPT = (
    "prompttokens promptlen promptlength promptlens numprompttokens prompttokencount inputtokens "
    "inputlen inputlength inputtoks numinputtokens inputtokencount contexttokens contextlength "
    "requesttokens prefilltokens numprefilltokens prefilllength tokensin tokenin isl prompt input"
)
_OUTPUT = (
    "outputtokens outputlen outputlength outputlens numoutputtokens outputtokencount outputtoks "
    "completiontokens completionlen completionlength generatedtokens generationtokens "
    "numgeneratedtokens responsetokens responselength decodetokens numdecodetokens decodelength "
    "tokensout tokenout osl output completion"
)
_ARRIVAL = (
    "arrival arrivaltime arrivedat arrivaltimestamp timestamp requesttimestamp reqtime requesttime "
    "starttime starttimeoffset submittime sendtime createdat created datetime date time ts offset t"
)
_BENCHMARK = ("requestthroughput", "totalinputtokens", "totaloutputtokens")
_EXAMPLES = {
    "prompt": "input_length or ContextTokens",
    "output": "output_length or GeneratedTokens",
}
_SUFFIXES = {
    "milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns", "seconds": "s", "millis": "ms",
    "msec": "ms", "usec": "us", "nsec": "ns", "secs": "s", "sec": "s", "ms": "ms", "us": "us",
    "ns": "ns", "s": "s",
}  # fmt: skip


def plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def columns_of(names: Sequence[str], unit: str | None = None) -> Columns:
    """Raises TraceError if no column can be the prompt's or the output's tokens. `unit` (s, ms,
    us, ns) overrules that of the format."""
    by_name: dict[str, str] = {}
    for name in names:
        by_name.setdefault(plain(name), name)
    for known in _KNOWN:
        wanted = {known.arrival or known.prompt, known.prompt, known.output}
        if wanted <= by_name.keys() and (not known.marks or by_name.keys() & set(known.marks)):
            return Columns(
                known.format,
                by_name[known.arrival] if known.arrival else None,
                by_name[known.prompt],
                by_name[known.output],
                unit or known.unit,
                by_name.get(known.hashes or ""),
                known.block,
            )
    return _usual(names, by_name, unit)


def _usual(names: Sequence[str], by_name: dict[str, str], unit: str | None) -> Columns:
    prompt = next((by_name[n] for n in _PROMPT.split() if n in by_name), None)
    output = next((by_name[n] for n in _OUTPUT.split() if n in by_name), None)
    for role, column in (("prompt", prompt), ("output", output)):
        if column is None:
            raise TraceError(
                f"no column with the {role}'s tokens. Seen: {shown(names)}. "
                f"Expected a header with a name such as {role}_tokens, {_EXAMPLES[role]}."
            )
    assert prompt is not None and output is not None
    arrival, stated = _arrival(by_name)
    return Columns("plain", arrival, prompt, output, unit or stated)


def _arrival(by_name: dict[str, str]) -> tuple[str | None, str | None]:
    for name in _ARRIVAL.split():
        if name in by_name:
            return by_name[name], None
        for suffix, unit in _SUFFIXES.items():
            if name + suffix in by_name:
                return by_name[name + suffix], unit
    return None, None


def shown(names: Sequence[str]) -> str:
    """Names for a message. Where none is known this is no header, and may be somebody's text."""
    known = {*_PROMPT.split(), *_OUTPUT.split(), *_ARRIVAL.split(), *_BENCHMARK}
    if not known & {plain(name) for name in names}:
        return f"{len(names):,} fields, none with a known name"
    fine = [n.strip() for n in names if re.fullmatch(r"\s*[A-Za-z][\w ().%/-]{0,31}\s*", n)][:8]
    hidden = len(names) - len(fine)
    return ", ".join(fine) + (f" and {hidden:,} more" if hidden else "")
