"""What is replayed: requests as columns, their arrivals in steps.

A trace tells seconds and an engine counts steps, so a length of a step is assumed and stated:
`STEP_MS` unless said otherwise. 30 ms is a common target for the time between two tokens; a real
server's steps take longer the more sequences run, which is not modelled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kvviz.errors import ConfigError, TraceError
from kvviz.records import Request
from kvviz.workloads.gaps import Gaps
from kvviz.workloads.lengths import NORMAL, load_mix, mix_names
from kvviz.workloads.presets import PRESETS, preset_config
from kvviz.workloads.stream import ON_DEMAND, RequestStream
from kvviz.workloads.traces.arrivals import cap_gaps, generate_arrivals, head, spread_bins
from kvviz.workloads.traces.read import read_trace
from kvviz.workloads.traces.scaling import scale_to
from kvviz.workloads.traces.trace import Prefix, Trace

STEP_MS = 30.0
MOST_STEPS = 1 << 30  # a step is kept in 32 bits
DEFAULT_ROWS = 10_000  # drawn of a mix or a preset when no number is given
MOST_ROWS = 5_000_000


@dataclass(frozen=True, eq=False)
class Load:
    """Requests in order of arrival; all columns int64 [rows]. `about` describes the source:
    format, rows, rows set aside, tokens, span. `context` bounds prompt + output - 1. `prefix`:
    chained hash ids of the prompts, where the trace has them: equal ids, equal tokens. `made`:
    the requests themselves, where they are more than their lengths."""

    arrival: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    context: int
    step_ms: float
    about: dict[str, Any]
    notes: tuple[str, ...] = ()
    prefix: Prefix | None = None
    made: tuple[Request, ...] = ()

    @property
    def rows(self) -> int:
        return len(self.prompt)

    @property
    def life(self) -> np.ndarray:
        """Slots held at the end: prompt + output - 1."""
        return self.prompt + self.output - 1

    def request(self, row: int) -> Request:
        """Row as a Request; it may ask for as much as the context holds."""
        if self.made:
            return self.made[row]
        prompt = int(self.prompt[row])
        limit = self.context - prompt + 1
        shared = () if self.prefix is None else self.prefix.parts(row, prompt)
        return Request(
            row, int(self.arrival[row]), prompt, int(self.output[row]), limit, row, shared
        )

    def noted(self, note: str) -> Load:
        return replace(self, notes=(*self.notes, note))

    def first(self, rows: int) -> Load:
        return replace(
            self,
            arrival=self.arrival[:rows],
            prompt=self.prompt[:rows],
            output=self.output[:rows],
            prefix=self.prefix and self.prefix.take(np.arange(min(rows, self.rows))),
            made=self.made[:rows],
        )


def load_of(
    source: str,
    *,
    slots: int,
    rows: int | None = None,
    rate: float | None = None,
    step_ms: float = STEP_MS,
    context: int | None = None,
    unit: str | None = None,
    cap_s: float | None = None,
    spread_s: float | None = None,
    seed: int = 1,
) -> Load:
    """A fitted mix by name (lengths undivided), a preset, or a file of requests.

    slots: the pool; a preset has no use for it. rate: requests a second, in place of those
    recorded. cap_s: idle gaps of a file are cut to it; spread_s: requests with one stamp are
    spread over up to so many seconds. context: else the power of two that holds the longest
    request, at most the pool. Raises ConfigError or TraceError.
    """
    if rows is not None and not 1 <= rows <= MOST_ROWS:
        raise ConfigError(f"{rows:,} requests: 1 to {MOST_ROWS:,} were expected.")
    if source in mix_names():
        trace = draw_mix(source, rows or DEFAULT_ROWS, rate, seed)
        return from_trace(trace, slots=slots, step_ms=step_ms, context=context)
    if source in PRESETS:
        return from_preset(source, rows or DEFAULT_ROWS, step_ms, seed)
    try:
        trace = read_trace(source, unit=unit)
    except TraceError as error:
        raise TraceError(f"{source}: {error}") from error
    return from_trace(
        trace, slots=slots, rows=rows, rate=rate, step_ms=step_ms, context=context, cap_s=cap_s,
        spread_s=spread_s,
    )  # fmt: skip


def from_trace(
    trace: Trace,
    *,
    slots: int,
    rows: int | None = None,
    rate: float | None = None,
    step_ms: float = STEP_MS,
    context: int | None = None,
    cap_s: float | None = None,
    spread_s: float | None = None,
) -> Load:
    """Arrivals counted from the first one, cut to whole steps; see `load_of`. Raises TraceError
    for a trace without arrivals when no rate is given, or one that spans more than `MOST_STEPS`
    steps."""
    if not 0.001 <= step_ms <= 60_000:
        raise ConfigError(f"a step of {step_ms:g} ms: 0.001 to 60,000 were expected.")
    if rows is not None:
        trace = head(trace, rows)
    if rate is not None:
        trace = generate_arrivals(trace, rate)
    if trace.arrival_s is None:
        raise TraceError(
            "the trace has no arrivals. Give a rate (requests a second; --rate on the command "
            "line) and they are generated as Poisson."
        )
    if cap_s is not None:
        trace = cap_gaps(trace, cap_s)
    if spread_s is not None:
        trace = spread_bins(trace, spread_s)
    context = context or _context(trace, slots)
    if int((trace.prompt + trace.output).max()) - 1 > context:
        trace = scale_to(trace, context, divide=1)
    arrival_s = trace.arrival_s
    assert arrival_s is not None, "the steps above keep the arrivals"
    since = (arrival_s - arrival_s[0]) * (1000 / step_ms)
    if since[-1] >= MOST_STEPS:
        raise TraceError(
            f"the trace spans {since[-1]:,.0f} steps of {step_ms:g} ms; up to {MOST_STEPS:,} can "
            "be replayed. Take fewer requests or a longer step."
        )
    return Load(
        since.astype(np.int64), trace.prompt, trace.output, context, step_ms, about(trace),
        trace.notes, trace.prefix,
    )  # fmt: skip


def from_preset(name: str, rows: int, step_ms: float = STEP_MS, seed: int = 1) -> Load:
    """The requests that a run of this preset would serve; its arrivals are in steps already."""
    config = preset_config(name)
    if config.mix.arrivals == "closed":
        raise ConfigError(
            f"{name} keeps a fixed number of requests in the system, so its arrivals depend on "
            "the lane and can't be replayed. Use `run --dry`, or another preset."
        )
    stream = RequestStream(config.mix, config.memory.context, seed)
    found = [stream._get(index) for index in range(rows)]
    arrival, prompt, output = (
        np.array([getattr(r, field) for r in found], np.int64)
        for field in ("arrival", "prompt_len", "output_len")
    )
    assert (arrival != ON_DEMAND).all()
    trace = Trace(
        arrival * (step_ms / 1000), prompt, output, f"preset {name}",
        {"arrival": "steps", "length": "tokens"},
    )  # fmt: skip
    mix = config.mix
    more = mix.prefix_share > 0 or mix.samples > 1 or mix.urgent_share > 0
    return Load(
        arrival, prompt, output, config.memory.context, step_ms, about(trace),
        made=tuple(found) if more else (),
    )  # fmt: skip


def draw_mix(name: str, rows: int, rate: float | None = None, seed: int = 1) -> Trace:
    """Requests of a fitted mix as they were recorded, nothing divided: lengths, their rank
    correlation, and its gaps at `rate` requests a second (else the recorded rate)."""
    mix = load_mix(name)
    rate = rate or mix.rate_per_s
    if rate is None:
        raise ConfigError(
            f"{name} has no recorded arrivals: give a rate (--rate, requests a second)."
        )
    random = np.random.default_rng([seed, 77])
    first, second = random.standard_normal((2, rows))
    tied = mix.copula_r * first + math.sqrt(1 - mix.copula_r**2) * second
    prompt, output = (
        _through_knots(_normal_cdf(z), mix.knots_pct, knots)
        for z, knots in ((first, mix.prompt_knots), (tied, mix.output_knots))
    )
    gaps = _gaps(mix.gaps, rows, random) / rate
    arrival = np.cumsum(gaps) - gaps[0]
    note = f"{rows:,} requests drawn from the fitted mix, {rate:g} a second, seed {seed}."
    units = {"arrival": "s (generated)", "length": "tokens"}
    return Trace(arrival, prompt, output, f"mix {name}", units, notes=(note,))


def about(trace: Trace) -> dict[str, Any]:
    """The `trace` part of a report."""
    return {
        "format": trace.format,
        "rows": trace.rows,
        "set_aside": trace.set_aside.count,
        "set_aside_by_reason": trace.set_aside.by_reason,
        "prompt_tokens": trace.prompt_tokens,
        "output_tokens": trace.output_tokens,
        "span_s": None if trace.span_s is None else round(trace.span_s, 3),
    }


def _context(trace: Trace, slots: int) -> int:
    longest = int((trace.prompt + trace.output).max()) - 1
    return max(2, min(slots, 1 << max(4, (longest - 1).bit_length())))


def _through_knots(
    u: np.ndarray, percents: tuple[float, ...], values: tuple[int, ...]
) -> np.ndarray:
    """`workloads.lengths` says why in log tokens."""
    logs = np.log(np.maximum(values, 1))
    return np.maximum(1, np.rint(np.exp(np.interp(100 * u, percents, logs)))).astype(np.int64)


def _gaps(gaps: Gaps, rows: int, random: np.random.Generator) -> np.ndarray:
    """In mean gaps; see `workloads.gaps`."""
    shape = 1 / max(gaps.variation, 1e-3) ** 2
    inside = random.gamma(shape, 1 / shape, rows)
    if gaps.on_off is None:
        return inside
    off, share = 1 / gaps.on_off.requests, gaps.on_off.off_share
    between = random.exponential(share / off, rows)
    return np.where(random.random(rows) < off, between, inside * (1 - share) / (1 - off))


def _normal_cdf(z: np.ndarray) -> np.ndarray:
    """By a table of 4,001 points, linear between them: within 1e-6."""
    grid = np.linspace(-6, 6, 4001)
    return np.interp(z, grid, [NORMAL.cdf(at) for at in grid])
