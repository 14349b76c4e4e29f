"""Requests of a file as a mix: request k has the lengths, the gap and the hash ids of row k.

A trace that was read is kept in this process under a name made from its file, `file:` and the
first digits of its SHA-256, so that the setting `mix.trace` can name it. Where nobody has given
the same file the name leads nowhere, and `recorded` says so.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kvviz.errors import ConfigError, TraceError
from kvviz.workloads.traces.scaling import divisor
from kvviz.workloads.traces.trace import Prefix, Trace

FILE = "file:"
_DIGITS = 12
_KEPT = 32  # traces in this process; the oldest one goes first
_MOST_ROWS = 1_000_000
_kept: OrderedDict[str, RecordedMix] = OrderedDict()


class RecordedRow(NamedTuple):
    """One row, with the questions that a fitted mix answers by chance. gap: in mean gaps."""

    prompt_len: int
    output_len: int
    mean_gaps: float
    prefix: Prefix | None
    at: int  # the row of the trace

    def prompt(self, _u: float) -> float:
        return self.prompt_len

    def output(self, _u: float) -> float:
        return self.output_len

    def correlate(self, _u_prompt: float, u_free: float) -> float:
        return u_free

    def gap(self, _u: float) -> float:
        return self.mean_gaps

    def shared(self, prompt: int, divide: int) -> tuple[tuple[int, int], ...]:
        """Hashed pieces of a prompt cut to so many tokens; none where they can't be divided."""
        return () if self.prefix is None else self.prefix.parts(self.at, prompt, divide)


class RecordedMix:
    """See the module. After the last row it begins anew."""

    def __init__(self, name: str, trace: Trace) -> None:
        self.name = name
        self.about = (
            f"{trace.rows:,} requests of a file ({trace.format}, {name}); after the last one they "
            "begin anew"
        )
        self._trace = trace
        self._gaps = _mean_gaps(trace)

    @property
    def rows(self) -> int:
        return self._trace.rows

    @property
    def has_arrivals(self) -> bool:
        return self._gaps is not None

    def row(self, index: int) -> RecordedRow:
        """Row `index`, counted round and round. Without arrivals all gaps are equal."""
        trace, at = self._trace, index % self.rows
        gap = 1.0 if self._gaps is None else float(self._gaps[at])
        return RecordedRow(int(trace.prompt[at]), int(trace.output[at]), gap, trace.prefix, at)

    def divisor(self, context: int) -> int:
        """The power of two that brings the 99th percentile of prompt + output under context."""
        return divisor(self._trace, context)


def keep(trace: Trace, digest: str) -> RecordedMix:
    """Keep a trace under its file's SHA-256 (hex). Raises TraceError for too many rows."""
    if trace.rows > _MOST_ROWS:
        raise TraceError(
            f"{trace.rows:,} requests: up to {_MOST_ROWS:,} are served live. Replay them dry "
            "(`python -m kvviz replay FILE`), or give a part of the file."
        )
    mix = RecordedMix(FILE + digest[:_DIGITS], trace)
    _kept[mix.name] = mix
    _kept.move_to_end(mix.name)
    while len(_kept) > _KEPT:
        _kept.popitem(last=False)
    return mix


def recorded(name: str) -> RecordedMix:
    """Raises ConfigError, which says what to do, for a file that was not given."""
    if name not in _kept:
        raise ConfigError(
            f"the requests came from a file (SHA-256 {name.removeprefix(FILE)[:64]}…) that is not "
            "here. Give that file: `--trace FILE` on the command line, 'Your own requests' on "
            "the live page."
        )
    return _kept[name]


def digest_of(source: bytes | str | Path) -> str:
    """SHA-256 (hex) of a file's bytes. Raises TraceError when it can't be read."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    try:
        with Path(source).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TraceError(f"{source} can't be opened: {error.strerror}.") from error


def settings_for(mix: RecordedMix) -> dict[str, object]:
    """Settings that serve a file's requests and nothing else."""
    return {
        "mix.trace": mix.name,
        "mix.prompts": "trace",
        "mix.outputs": "trace",
        "mix.arrivals": "trace" if mix.has_arrivals else "poisson",
        "mix.long_share": 0.0,
        "mix.prefix_share": 0.0,
    }


def _mean_gaps(trace: Trace) -> np.ndarray | None:
    """float [rows]: the gap before each row over the mean gap; the first row's is that mean.
    None without arrivals, ones where all came at once."""
    if trace.arrival_s is None:
        return None
    gaps = np.diff(trace.arrival_s)
    mean = float(gaps.mean()) if len(gaps) else 0.0
    if not mean:
        return np.ones(trace.rows)
    return np.concatenate(([1.0], gaps / mean))
