"""Gaps between arrivals by their quantile function, in mean gaps: uniform number -> gap, mean 1."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class OnOff:
    """Traffic that comes and goes: runs of `requests` on average, and `off_share` of all time
    between two runs, where nothing arrives."""

    requests: float
    off_share: float


@dataclass(frozen=True)
class Gaps:
    """Gamma gaps with standard deviation `variation` times their mean (1: Poisson); inside the
    runs only where the traffic is on-off."""

    variation: float = 1.0
    on_off: OnOff | None = None

    def at(self, u: float) -> float:
        """The gap that a share `u` of all gaps is shorter than."""
        if self.on_off is None:
            return self._inside(u)
        off = 1 / self.on_off.requests  # a gap in so many is one between runs
        if u > 1 - off:  # exponential
            return -math.log((1 - u) / off) * self.on_off.off_share / off
        return self._inside(u / (1 - off)) * (1 - self.on_off.off_share) / (1 - off)

    def _inside(self, u: float) -> float:
        if self.variation == 1:
            return -math.log1p(-min(u, 1 - 1e-12))
        if self.variation == 0:
            return 1.0
        shape = 1 / self.variation**2
        return gamma_quantile(shape, min(u, 1 - 1e-12)) / shape


def gamma_quantile(shape: float, u: float) -> float:
    """x with P(shape, x) = u, scale 1, for u in [0, 1).

    Newton's method on log P over log x, which is concave: it starts left of the root, where
    x^a / Gamma(a + 1) = u bounds P from above, and climbs to it without overshooting.
    """
    if u <= 0:
        return 0.0
    log_u = math.log(u)
    t = (log_u + math.lgamma(shape + 1)) / shape
    for _ in range(200):
        if t < -700:
            return 0.0
        log_p, slope = _log_gamma_p(shape, t)
        step = (log_u - log_p) / slope
        t += step
        if step < 1e-10:
            break
    return math.exp(t)


def _log_gamma_p(shape: float, t: float) -> tuple[float, float]:
    """log P(shape, e^t), the regularised lower incomplete gamma function by its power series, and
    the derivative in t."""
    x = math.exp(t)
    term = total = 1.0
    n = shape
    while term > 1e-17 * total:
        n += 1
        term *= x / n
        total += term
    log_p = shape * t - x - math.lgamma(shape + 1) + math.log(total)
    return min(log_p, 0.0), shape / total
