"""Gaps between arrivals: gamma by its quantiles, and traffic that comes and goes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.workloads.gaps import Gaps, OnOff, gamma_quantile
from kvviz.workloads.lengths import load_mix, mix_names

GRID = (np.arange(20_000) + 0.5) / 20_000


@given(st.floats(1e-9, 1 - 1e-9))
def test_quantiles_with_a_closed_form(u: float) -> None:
    """Shape 1 is exponential; shape 2 has P = 1 - (1 + x) e^-x; shape 1/2 is half a square of a
    normal number."""
    assert gamma_quantile(1, u) == pytest.approx(-math.log1p(-u), rel=1e-6)
    x = gamma_quantile(2, u)
    assert -math.expm1(-x) - x * math.exp(-x) == pytest.approx(u, rel=1e-6, abs=1e-12)
    assert math.erf(math.sqrt(gamma_quantile(0.5, u))) == pytest.approx(u, rel=1e-6)


@given(st.floats(0.1, 20), st.lists(st.floats(0, 1 - 1e-9), min_size=2, max_size=8))
def test_quantiles_ascend(variation: float, us: list[float]) -> None:
    """A larger number gives a shorter gap: the luck of a seed would turn round."""
    found = [Gaps(variation).at(u) for u in sorted(us)]
    assert found == sorted(found)
    assert found[0] >= 0
    assert math.isfinite(found[-1])


@pytest.mark.parametrize("variation", [0, 0.3, 0.964, 1, 1.194, 2.211])
def test_mean_and_variation(variation: float) -> None:
    """The rate or the burstiness of the stream is not what was fitted."""
    found = np.array([Gaps(variation).at(u) for u in GRID])
    assert found.mean() == pytest.approx(1, rel=0.01)
    assert found.std() == pytest.approx(variation, rel=0.02)


def test_traffic_that_comes_and_goes() -> None:
    """The share of idle time, or the length of the runs, is not that of the recording."""
    gaps = Gaps(2.0, OnOff(requests=50, off_share=0.7))
    found = np.sort([gaps.at(u) for u in GRID])
    assert found.mean() == pytest.approx(1, rel=0.02)
    off = found[-len(GRID) // 50 :]
    assert off.sum() / found.sum() == pytest.approx(0.7, abs=0.02)


@pytest.mark.parametrize("name", mix_names())
def test_gaps_of_the_shipped_mixes_have_mean_1(name: str) -> None:
    """mix.rate is not the rate of the stream."""
    mix = load_mix(name)
    assert np.mean([mix.gaps.at(u) for u in GRID]) == pytest.approx(1, rel=0.02)
    assert mix.arrivals in ("recorded", "generated", "statistics", "none")
    assert (mix.rate_per_s is None) == (mix.arrivals == "none")


def test_burstiness_of_azure_code() -> None:
    """The recording's gaps vary 13 times their mean; 72 % of the time is idle."""
    mix = load_mix("azure-code-2023")
    found = np.array([mix.gaps.at(u) for u in GRID])
    assert 10 < found.std() < 15
    assert mix.gaps.on_off == OnOff(152.1, 0.7174)
    assert sum(mix.minute_counts) == 8819
