"""A series over a run in a few numbers; None when nothing was recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


def summary(values: np.ndarray) -> dict[str, float | None]:
    """Mean and 95th percentile over steps; None when there was no step."""
    if not len(values):
        return {"mean": None, "p95": None}
    return {
        "mean": round(float(values.mean()), 4),
        "p95": round(float(np.percentile(values, 95)), 4),
    }


@dataclass(frozen=True)
class TimeWeighted:
    """Mean, median and 95th percentile, each value weighted with the steps for which it held."""

    mean: float | None
    median: float | None
    p95: float | None


def time_weighted(
    steps: np.ndarray, values: np.ndarray, until: float | None = None
) -> TimeWeighted:
    """Of a step series [n], n values that each hold from their step until the next.

    steps rise; gaps between them are allowed, and so is NaN: for as long as it holds the series
    is not applicable and weighs nothing. The last value holds until `until` (default: one step).
    A quantile q is the smallest value that held, or was higher than what held, for a share q of
    the time: always a value that occurred.
    """
    steps, values = np.asarray(steps, float), np.asarray(values, float)
    if not len(steps):
        return TimeWeighted(None, None, None)
    end = steps[-1] + 1 if until is None else until
    spans = np.diff(steps, append=end)
    assert (spans[:-1] > 0).all() and spans[-1] >= 0, "steps must rise, up to the end"
    known = ~np.isnan(values) & (spans > 0)
    values, spans = values[known], spans[known]
    if not len(values):
        return TimeWeighted(None, None, None)
    order = np.argsort(values, kind="stable")
    values, spans = values[order], spans[order]
    passed = np.cumsum(spans)
    return TimeWeighted(
        float((values * spans).sum() / passed[-1]),
        _quantile(values, passed, 0.5),
        _quantile(values, passed, 0.95),
    )


def _quantile(values: np.ndarray, passed: np.ndarray, share: float) -> float:
    """`passed` [n]: the time for which the series was at most values [n]."""
    target = share * passed[-1] * (1 - 1e-12)  # 0.95 * 20 is a hair above 19
    return float(values[np.searchsorted(passed, target)])
