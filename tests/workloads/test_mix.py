"""What arrives, and when."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from kvviz.config import Mix
from kvviz.errors import ConfigError
from kvviz.records import Request
from kvviz.workloads.lengths import DISTRIBUTIONS, MIXES, load_mix, mix_names
from kvviz.workloads.stream import RequestStream

GRID = (np.arange(20_000) + 0.5) / 20_000


def drain(stream: RequestStream, count: int) -> list[Request]:
    taken: list[Request] = []
    step = 0
    while len(taken) < count:
        taken += stream.take(len(taken), step, 0)
        step += 1
    return taken[:count]


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions_keep_their_mean(name: str) -> None:
    found = np.mean([DISTRIBUTIONS[name](u, 200.0, 0.5) for u in GRID])
    assert found == pytest.approx(200, rel=0.01)


@pytest.mark.parametrize("name", mix_names())
def test_fitted_mixes_reproduce_their_means(name: str) -> None:
    """Within 6 % of the trace's own mean prompt and output."""
    raw = json.loads((MIXES / f"{name}.json").read_text())
    mix = load_mix(name)
    assert np.mean([mix.prompt(u) for u in GRID]) == pytest.approx(raw["prompt_mean"], rel=0.06)
    assert np.mean([mix.output(u) for u in GRID]) == pytest.approx(raw["output_mean"], rel=0.06)
    assert mix.licence in ("CC-BY-4.0", "Apache-2.0", "MIT")
    assert mix.source
    assert mix.fitted.startswith("Quantile knots")
    rng = np.random.default_rng(3)
    tied = [mix.output(mix.correlate(*u)) for u in rng.random((20_000, 2))]
    assert np.mean(tied) == pytest.approx(raw["output_mean"], rel=0.06)


@pytest.mark.parametrize("name", mix_names())
def test_sampled_pairs_have_the_rank_correlation(name: str) -> None:
    """Prompt and output of a request are drawn as strangers, or the tie is turned round."""
    raw = json.loads((MIXES / f"{name}.json").read_text())
    mix = load_mix(name)
    u = np.random.default_rng(3).random((20_000, 2))
    tied = [mix.correlate(a, b) for a, b in u]
    ranks = np.argsort(np.argsort(u[:, 0])), np.argsort(np.argsort(tied))
    expected = raw["spearman"] or 0.0
    assert np.corrcoef(*ranks)[0, 1] == pytest.approx(expected, abs=0.03)
    total = [mix.prompt(a) + mix.output(b) for a, b in zip(u[:, 0], tied, strict=True)]
    # No copula knows that arXiv's pairs were filtered to a total of 4,096.
    assert np.percentile(total, 99) == pytest.approx(mix.total_p99, rel=0.4)


@pytest.mark.parametrize("spread", [0.5, 0.8, 2.0])
def test_wide_uniform_lengths_keep_their_mean(spread: float) -> None:
    """A cut at 1 would make requests longer than the slider says."""
    found = np.mean([max(1, DISTRIBUTIONS["uniform"](u, 200.0, spread)) for u in GRID])
    assert found == pytest.approx(200, rel=0.01)


def test_copula_ties_outputs_to_prompts() -> None:
    """Correlation of the normal scores is the r that was asked for."""
    mix = load_mix("azure-chat-2023")
    rng = np.random.default_rng(0)
    a, b = rng.random(20_000), rng.random(20_000)
    tied = [mix.correlate(x, y) for x, y in zip(a, b, strict=True)]
    assert np.corrcoef(a, tied)[0, 1] == pytest.approx(mix.copula_r, abs=0.03)


def test_divisor_brings_the_tail_under_the_context() -> None:
    """p99 of prompt + output is 4,259: a quarter of it fits in 2,048."""
    assert load_mix("azure-chat-2023").divisor(2048) == 4
    assert load_mix("azure-chat-2023").divisor(8192) == 1


def test_unknown_mix_lists_the_known() -> None:
    with pytest.raises(ConfigError, match="azure-chat-2023"):
        load_mix("nope")


def test_a_seed_fixes_the_stream() -> None:
    one, same, other = (RequestStream(Mix(), 2048, seed) for seed in (3, 3, 4))
    assert drain(one, 700) == drain(same, 700)
    assert one.hash == same.hash
    assert drain(other, 700) != drain(same, 700)
    assert other.hash != same.hash


def test_poisson_keeps_its_rate() -> None:
    last = drain(RequestStream(Mix(rate=0.5, long_share=0), 2048, 1), 5000)[-1]
    assert last.arrival == pytest.approx(10_000, rel=0.1)


def test_steady_and_bursts() -> None:
    steady = drain(RequestStream(Mix(arrivals="steady", rate=0.5), 2048, 1), 10)
    assert [r.arrival for r in steady] == list(range(2, 22, 2))
    bursts = drain(RequestStream(Mix(arrivals="bursts", burst=5, rate=0.5), 2048, 1), 50)
    assert [len({r.arrival for r in bursts[i : i + 5]}) for i in range(0, 50, 5)] == [1] * 10


def test_closed_loop_refills_to_its_concurrency() -> None:
    stream = RequestStream(Mix(arrivals="closed", concurrency=6), 2048, 1)
    assert len(stream.take(0, 0, 0)) == 6
    assert len(stream.take(6, 9, 4)) == 2
    assert stream.take(8, 9, 6) == []


def test_no_life_is_longer_than_the_context() -> None:
    """Such a request could never be served; the cut is counted."""
    stream = RequestStream(Mix(long_share=1, long_prompt=4096, output_mean=400), 512, 1)
    taken = drain(stream, 300)
    assert max(r.life for r in taken) <= 512
    assert stream.scaling.clipped >= 300
    assert all(r.prompt_len + r.limit - 1 == 512 for r in taken)


def test_a_new_mix_keeps_the_luck() -> None:
    """Request k has the same random numbers under any mix."""
    short = drain(RequestStream(Mix(prompt_mean=100, long_share=0), 1 << 16, 1), 40)
    double = drain(RequestStream(Mix(prompt_mean=200, long_share=0), 1 << 16, 1), 40)
    ratios = [b.prompt_len / a.prompt_len for a, b in zip(short, double, strict=True)]
    assert all(math.isclose(r, 2, rel_tol=0.05) for r in ratios)
    assert [r.output_len for r in short] == [r.output_len for r in double]
