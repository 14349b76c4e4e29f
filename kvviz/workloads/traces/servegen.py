"""ServeGen (Alibaba Cloud Model Studio, Apache-2.0): statistics of one client, no log of requests.

`chunk-N-trace.csv`, without a header: start s, requests/s, coefficient of variation of the gaps,
family and its two parameters, a row a window. `chunk-N-dataset.json`: by start of window, text of
Python dicts {tokens: probability}. Requests are drawn from both: gamma gaps with the window's rate
and variation, lengths from its histograms, prompt and output each for itself, since the source
holds no pairs.
"""

from __future__ import annotations

import csv
import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kvviz.errors import TraceError
from kvviz.workloads.traces.source import Lines
from kvviz.workloads.traces.trace import Trace

MOST_REQUESTS = 100_000
MOST_RATE = 1_000_000  # requests a second
MOST_VARIATION = 100
MOST_TOKENS = 10**9
_LONGEST_S = 1e12
_DRAWS = 1000  # of gaps in a window: nearly all of a very uneven one are 0
_PROMPTS = ("input_tokens", "text_tokens")
_FAMILIES = ("Gamma", "Weibull", "")


@dataclass(frozen=True)
class Histogram:
    tokens: np.ndarray  # int64
    share: np.ndarray  # float64, sums to 1

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.choice(self.tokens, size=count, p=self.share)


@dataclass(frozen=True)
class Window:
    start_s: float
    rate: float
    variation: float


def is_lengths(document: dict[str, Any]) -> bool:
    """The JSON half of a client."""
    return bool(document) and all(
        isinstance(value, dict) and "output_tokens" in value and set(value) & set(_PROMPTS)
        for value in document.values()
    )


def is_rates(line: str) -> bool:
    """A first line of the CSV half."""
    fields = line.strip().split(",")
    return len(fields) == 6 and fields[3] in _FAMILIES and all(map(_is_number, fields[:3]))


def read_rates(lines: Lines) -> list[Window]:
    """Raises TraceError, with the line, for a row that is none of ServeGen's."""
    windows: list[Window] = []
    while (line := lines.next()) is not None:
        if not line.strip():
            continue
        fields = next(csv.reader([line]))
        if len(fields) != 6 or not all(map(_is_number, fields[:3])):
            raise TraceError(
                f"servegen: line {lines.number:,} has no start, rate and variation (six fields, "
                "the first three numbers)."
            )
        windows.append(Window(*map(float, fields[:3])))
    starts = [window.start_s for window in windows]
    if any(not (0 <= w.rate <= MOST_RATE and 0 <= w.variation <= MOST_VARIATION) for w in windows):
        raise TraceError(
            "servegen: rates and variations must not be negative, nor more than "
            f"{MOST_RATE:,} a second and {MOST_VARIATION}."
        )
    if starts != sorted(set(starts)) or any(abs(start) > _LONGEST_S for start in starts):
        raise TraceError("servegen: starts ascend, and are seconds.")
    return windows


def lengths_only(
    document: dict[str, Any], requests: int = MOST_REQUESTS // 10, seed: int = 1
) -> Trace:
    """Lengths without arrivals: every window that has a histogram gives the same number."""
    windows = _histograms(document)
    each = max(1, requests // len(windows))
    rng = np.random.default_rng(seed)
    drawn = [(p.draw(rng, each), o.draw(rng, each)) for _, p, o in windows]
    trace = _trace(None, *(np.concatenate(side) for side in zip(*drawn, strict=True)))
    return trace.noted(
        f"{trace.rows:,} lengths drawn (seed {seed}) from {len(windows):,} histograms: the file "
        "holds no requests. No arrivals: give the client's trace.csv too, or generate them."
    )


def read_client(
    windows: list[Window], document: dict[str, Any], limit: int = MOST_REQUESTS, seed: int = 1
) -> Trace:
    """Requests of one client from its first busy window on, at most `limit`."""
    histograms = _histograms(document)
    starts = [start for start, _, _ in histograms]
    step = windows[1].start_s - windows[0].start_s if len(windows) > 1 else 600.0
    rng = np.random.default_rng(seed)
    arrivals, prompts, outputs = [], [], []
    total = used = borrowed = 0
    for window in windows:
        if total >= limit:
            break
        at = _gaps(window, step, rng)[: limit - total]
        if not len(at):
            continue
        index = max(bisect_right(starts, window.start_s) - 1, 0)
        borrowed += not starts[index] <= window.start_s < starts[index] + _span(document)
        _, prompt, output = histograms[index]
        arrivals.append(window.start_s + at)
        prompts.append(prompt.draw(rng, len(at)))
        outputs.append(output.draw(rng, len(at)))
        total, used = total + len(at), used + 1
    if not total:
        raise TraceError("servegen: the client is idle in every window.")
    trace = _trace(*(np.concatenate(side) for side in (arrivals, prompts, outputs)))
    if any("image_tokens" in value for value in document.values()):
        trace = trace.noted("Prompts are text and, the same for all of a window, the mean images.")
    return trace.noted(
        f"{total:,} requests drawn (seed {seed}) from the rates of {used:,} busy windows of "
        f"{step:,.0f} s: the files hold statistics, no requests."
        + (f" Stopped at the limit of {limit:,}." if total >= limit else "")
        + (f" {borrowed:,} windows took the lengths of another one." if borrowed else "")
    )


def _trace(arrival: np.ndarray | None, prompt: np.ndarray, output: np.ndarray) -> Trace:
    least = np.int64(1)
    zero = int(np.count_nonzero((prompt < 1) | (output < 1)))
    trace = Trace(
        arrival,
        np.maximum(prompt, least),
        np.maximum(output, least),
        "servegen",
        {"arrival": "none" if arrival is None else "s (generated)", "length": "tokens"},
    )
    return trace.noted(f"{zero:,} lengths of 0 were raised to 1.") if zero else trace


def _gaps(window: Window, length: float, rng: np.random.Generator) -> np.ndarray:
    """Arrivals inside one window, from its start."""
    if window.rate <= 0:
        return np.empty(0)
    shape = 1 / max(window.variation, 1e-3) ** 2
    found: list[np.ndarray] = []
    at = 0.0
    for _ in range(_DRAWS):
        if at >= length:
            break
        count = min(max(16, math.ceil(1.2 * window.rate * length)), MOST_REQUESTS)
        times = at + np.cumsum(rng.gamma(shape, 1 / (shape * window.rate), count))
        found.append(times[times < length])
        at = float(times[-1])
        if sum(map(len, found)) > 10 * MOST_REQUESTS:
            break
    return np.concatenate(found)


def _histograms(document: dict[str, Any]) -> list[tuple[float, Histogram, Histogram]]:
    """(start, prompt, output) of every window that is not idle, ascending."""
    found = []
    for start, value in document.items():
        if not _is_number(start):
            raise TraceError("servegen: windows are named by their start in seconds.")
        name = next(n for n in _PROMPTS if n in value)
        prompt, output = _histogram(value[name], name), _histogram(value["output_tokens"], "output")
        if prompt is None or output is None:
            continue
        if name == "text_tokens":
            prompt = _with_images(prompt, value)
        found.append((float(start), prompt, output))
    if not found:
        raise TraceError("servegen: every window is idle: there are no lengths to draw from.")
    return sorted(found, key=lambda window: window[0])


def _histogram(text: Any, name: str) -> Histogram | None:
    """`{45: 0.0096, 46: 0.1}` read as text, never evaluated; None for `{}`."""
    try:
        inside = text.strip().removeprefix("{").removesuffix("}").strip()
        if not inside:
            return None
        pairs = [item.split(":") for item in inside.split(",") if item.strip()]
        tokens = [int(key) for key, _ in pairs]
        share = np.array([float(value) for _, value in pairs])
    except (ValueError, AttributeError, OverflowError) as error:
        raise TraceError(f"servegen: {name}: {{tokens: probability, ...}} was expected.") from error
    if not (np.all(share >= 0) and abs(share.sum() - 1) < 1e-6):
        raise TraceError(f"servegen: {name}: probabilities from 0 that sum to 1 were expected.")
    if not all(0 <= number <= MOST_TOKENS for number in tokens):
        raise TraceError(f"servegen: {name}: tokens from 0 to {MOST_TOKENS:,} were expected.")
    return Histogram(np.array(tokens, np.int64), share / share.sum())


def _with_images(prompt: Histogram, value: dict[str, Any]) -> Histogram:
    """Text and the mean of the images: a prompt holds both, and the source has no pairs."""
    tokens, count = (_histogram(value.get(n, "{}"), n) for n in ("image_tokens", "image_count"))
    if tokens is None or count is None:
        return prompt
    images = float(tokens.tokens @ tokens.share) * float(count.tokens @ count.share)
    return replace(prompt, tokens=np.minimum(prompt.tokens + round(images), MOST_TOKENS))


def _span(document: dict[str, Any]) -> float:
    starts = sorted(float(start) for start in document)
    return starts[1] - starts[0] if len(starts) > 1 else math.inf


def _is_number(text: Any) -> bool:
    try:
        return math.isfinite(float(text))
    except (TypeError, ValueError):
        return False
