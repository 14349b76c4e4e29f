"""Length distributions by their quantile function: uniform number in (0, 1) -> tokens; and the
fitted mixes, which know how their requests arrive too.

Sampling by quantile keeps request k at the same random numbers whatever the mix is, so that
moving a slider changes the lengths and not the luck.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

from kvviz.errors import ConfigError
from kvviz.workloads.gaps import Gaps, OnOff

NORMAL = NormalDist()
MIXES = Path(__file__).resolve().parents[2] / "data" / "mixes"
DEFAULT_MIX = "azure-chat-2023"


def fixed(u: float, mean: float, _spread: float) -> float:
    return mean


def uniform(u: float, mean: float, spread: float) -> float:
    """Uniform with this mean and standard deviation spread * mean, or less where lengths below 1
    would be needed for it."""
    half = min(math.sqrt(3) * spread * mean, mean - 1)
    return mean + (2 * u - 1) * half


def lognormal(u: float, mean: float, spread: float) -> float:
    """Lognormal with this mean and standard deviation spread * mean."""
    variance = math.log1p(spread * spread)
    return math.exp(math.log(mean) - variance / 2 + math.sqrt(variance) * NORMAL.inv_cdf(u))


DISTRIBUTIONS = {"fixed": fixed, "uniform": uniform, "lognormal": lognormal}


@dataclass(frozen=True)
class FittedMix:
    """Quantile knots of a public trace; see `data/mixes/NAME.json` for source and licence.

    `copula_r` couples prompt and output. `rate_per_s`, `gaps` and `minute_counts` (requests in
    each minute of the recording) are the arrivals; `arrivals` says where they come from: recorded,
    generated (by the trace's authors), statistics (of its clients) or none (`gaps` is Poisson).
    """

    name: str
    source: str
    licence: str
    knots_pct: tuple[float, ...]
    prompt_knots: tuple[int, ...]
    output_knots: tuple[int, ...]
    copula_r: float
    total_p99: int
    fitted: str
    arrivals: str
    rate_per_s: float | None
    gaps: Gaps
    minute_counts: tuple[int, ...]

    @property
    def about(self) -> str:
        return f"{self.source}, {self.licence}"

    def row(self, _index: int) -> FittedMix:
        """All requests are drawn from the same quantiles."""
        return self

    def shared(self, _prompt: int, _divide: int) -> tuple[tuple[int, int], ...]:
        return ()

    def gap(self, u: float) -> float:
        """In mean gaps: the one that a share `u` of all gaps is shorter than."""
        return self.gaps.at(u)

    def prompt(self, u: float) -> float:
        return _through_knots(u, self.knots_pct, self.prompt_knots)

    def output(self, u: float) -> float:
        return _through_knots(u, self.knots_pct, self.output_knots)

    def correlate(self, u_prompt: float, u_free: float) -> float:
        """Gaussian copula: a uniform number tied to `u_prompt` with correlation r."""
        r = self.copula_r
        z = r * NORMAL.inv_cdf(u_prompt) + math.sqrt(1 - r * r) * NORMAL.inv_cdf(u_free)
        return min(max(NORMAL.cdf(z), 1e-9), 1 - 1e-9)

    def divisor(self, context: int) -> int:
        """The power of two that brings the 99th percentile of prompt + output under context."""
        divide = 1
        while self.total_p99 / divide > context:
            divide *= 2
        return divide


def mix_names() -> list[str]:
    return sorted(path.stem for path in MIXES.glob("*.json"))


@lru_cache(maxsize=32)  # frozen, and asked for with every frame
def load_mix(name: str) -> FittedMix:
    """Raises ConfigError for an unknown name."""
    if name not in mix_names():
        raise ConfigError(f"no fitted mix {name!r}. There is: {', '.join(mix_names())}.")
    raw = json.loads((MIXES / f"{name}.json").read_text(encoding="utf-8"))
    return FittedMix(
        raw["id"],
        raw["source"],
        raw["licence"],
        tuple(raw["knots_pct"]),
        tuple(raw["prompt_knots"]),
        tuple(raw["output_knots"]),
        raw["gauss_copula_r"],
        raw["p99_total"],
        raw["fitted"],
        **_arrivals(raw["arrival"]),
    )


def _arrivals(raw: dict[str, Any]) -> dict[str, Any]:
    on_off = raw.get("on_off")
    return {
        "arrivals": raw["kind"],
        "rate_per_s": raw.get("rate_per_s"),
        "gaps": Gaps(
            raw.get("gap_variation", 1.0),
            on_off and OnOff(on_off["requests_per_run"], on_off["off_share"]),
        ),
        "minute_counts": tuple(raw.get("minute_counts", ())),
    }


def _through_knots(u: float, percents: tuple[float, ...], values: tuple[int, ...]) -> float:
    """Interpolate in log tokens: linear steps would inflate the mean by the long last one."""
    at = 100 * u
    right = min(max(bisect_right(percents, at), 1), len(percents) - 1)
    low, high = percents[right - 1], percents[right]
    share = min(max((at - low) / (high - low), 0.0), 1.0)
    a, b = math.log(max(values[right - 1], 1)), math.log(max(values[right], 1))
    return math.exp(a + (b - a) * share)
