"""What a replay may do to the times of a trace. Each hands back a new Trace with a note that says
what was done to how many requests; the old one stays as it was.
"""

from __future__ import annotations

import numpy as np

from kvviz.errors import TraceError
from kvviz.workloads.traces.trace import Trace

MOST_BINS = 200_000  # four months of minutes


def cap_gaps(trace: Trace, seconds: float) -> Trace:
    """Idle gaps longer than `seconds` are shortened to it. Raises TraceError if there are no
    arrivals or `seconds` is not above 0."""
    arrival = _arrivals(trace)
    _positive("seconds", seconds)
    gaps = np.diff(arrival)
    idle = gaps > seconds
    cut = float((gaps[idle] - seconds).sum())
    if not cut:
        return trace.noted(f"No gap is longer than {seconds:g} s.")
    share = cut / float(arrival[-1] - arrival[0])
    return trace.noted(
        f"{np.count_nonzero(idle):,} idle gaps were cut to {seconds:g} s: {cut:,.1f} s "
        f"({share:.0%} of the span) taken out.",
        arrival_s=arrival[0] + np.concatenate(([0.0], np.cumsum(np.minimum(gaps, seconds)))),
    )


def spread_bins(trace: Trace, seconds: float) -> Trace:
    """Requests with one and the same coarse stamp are spread evenly from it to the next stamp, at
    most over `seconds`: Mooncake's stamps are 3 s apart, and as recorded its requests come ten at
    a time. Raises TraceError if there are no arrivals or `seconds` is not above 0."""
    arrival = _arrivals(trace)
    _positive("seconds", seconds)
    stamps, first, count = np.unique(arrival, return_index=True, return_counts=True)
    width = np.minimum(np.diff(stamps, append=stamps[-1] + seconds), seconds)
    place = np.arange(len(arrival)) - np.repeat(first, count)
    moved = int((count - 1).sum())
    if not moved:
        return trace.noted("No two requests have the same stamp: nothing to spread.")
    bins = np.count_nonzero(count > 1)
    return trace.noted(
        f"{moved:,} of {trace.rows:,} requests shared a stamp with an earlier one and were spread "
        f"evenly inside {bins:,} bins of at most {seconds:g} s.",
        arrival_s=arrival + place * np.repeat(width / count, count),
    )


def skip_quiet_head(trace: Trace, bin_s: float = 60.0, share: float = 0.1) -> Trace:
    """Leave out the ramp at the start: bins of `bin_s` before the first three in a row that have
    at least `share` of the mean rate of the trace's second half. Raises TraceError if there are
    no arrivals or `bin_s` is not above 0."""
    arrival = _arrivals(trace)
    _positive("bin_s", bin_s)
    since = arrival - arrival[0]
    bins = int(since[-1] // bin_s) + 1
    if bins > MOST_BINS:
        raise TraceError(f"bin_s {bin_s:g}: the trace has {bins:,} of them. Take a longer one.")
    counts = np.bincount((since // bin_s).astype(np.int64), minlength=bins)
    least = share * counts[bins // 2 :].mean()
    busy = np.convolve(counts >= least, (1, 1, 1))[2:]  # busy[k]: of bins k, k + 1, k + 2
    begins = np.flatnonzero(busy == min(3, bins))
    begin = int(begins[0]) if len(begins) else 0
    rows = np.flatnonzero(since >= begin * bin_s)
    if len(rows) == trace.rows:
        return trace.noted("The trace has no quiet head.")
    return trace.select(
        rows,
        f"{trace.rows - len(rows):,} requests of a quiet head of {begin * bin_s:,.0f} s (under "
        f"{share:.0%} of the later rate) were left out.",
    )


def head(trace: Trace, count: int) -> Trace:
    """The first `count` requests. Raises TraceError if that is less than 1."""
    if count < 1:
        raise TraceError(f"head {count}: at least 1 request is needed.")
    if count >= trace.rows:
        return trace.noted(f"All {trace.rows:,} requests are kept.")
    return trace.select(np.arange(count), f"The first {count:,} of {trace.rows:,} requests.")


def generate_arrivals(trace: Trace, rate: float, burstiness: float = 1.0, seed: int = 1) -> Trace:
    """Arrivals for a file without: gamma gaps of mean 1 / rate (requests a second) whose standard
    deviation is `burstiness` times the mean: 0 is steady, 1 Poisson. The first is at 0. Raises
    TraceError for a rate that is not above 0 or a burstiness outside 0 to 100."""
    _positive("rate", rate)
    if not 0 <= burstiness <= 100:
        raise TraceError(f"burstiness {burstiness:g}: 0 (steady) to 100 was expected.")
    count = trace.rows - 1
    if burstiness < 1e-3:
        gaps = np.full(count, 1 / rate)
    else:
        shape = 1 / burstiness**2
        gaps = np.random.default_rng(seed).gamma(shape, 1 / (shape * rate), count)
    replaced = "" if trace.arrival_s is None else " in place of those of the file"
    return trace.noted(
        f"Arrivals are generated{replaced}: {rate:g} requests a second, standard deviation of the "
        f"gaps {burstiness:g} times their mean, seed {seed}.",
        arrival_s=np.concatenate(([0.0], np.cumsum(gaps))),
        units={**trace.units, "arrival": "s (generated)"},
    )


def _arrivals(trace: Trace) -> np.ndarray:
    if trace.arrival_s is None:
        raise TraceError("the trace has no arrivals: generate them first (a rate is needed).")
    return trace.arrival_s


def _positive(name: str, value: float) -> None:
    if not 0 < value < float("inf"):
        raise TraceError(f"{name} {value:g}: a number above 0 was expected.")
