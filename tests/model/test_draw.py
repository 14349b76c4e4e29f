"""Tokens drawn by torch's operations are those that the kernel draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvviz.model import kernels
from kvviz.model.draw import draw, uniform


def by_kernel(logits: np.ndarray, temperature: float, seed: int, *where: np.ndarray) -> np.ndarray:
    out = np.empty(len(logits), np.int64)
    kernels.sample(logits.copy(), temperature, seed, *where, out)
    return out


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 4.0])
@pytest.mark.parametrize("banned", [[], [0], [3, 256]])
@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1])
def test_draws_equal_the_kernels(temperature: float, banned: list[int], seed: int) -> None:
    """A lane on another device answers otherwise, or draws what is banned."""
    rng = np.random.default_rng(seed)
    logits = (4 * rng.standard_normal((300, 257))).astype(np.float32)
    requests = rng.integers(0, 1 << 40, 300)
    positions = rng.integers(0, 1 << 16, 300)
    bans = np.array(banned, np.int64)
    found = draw(torch.from_numpy(logits), temperature, seed, requests, positions, bans)
    expected = by_kernel(logits, temperature, seed, requests, positions, bans)
    np.testing.assert_array_equal(found, expected)
    assert not set(found.tolist()) & set(banned)


def test_one_token_has_all_the_weight() -> None:
    """Sums of one weight and many zeros lead past the end of the vocabulary."""
    logits = torch.full((64, 50), -1e4)
    logits[torch.arange(64), torch.arange(64) % 50] = 1e4
    where = np.arange(64)
    found = draw(logits, 0.5, 7, where, where, np.zeros(0, np.int64))
    assert found.tolist() == (where % 50).tolist()


def test_uniform_is_spread_and_in_range() -> None:
    requests, positions = (a.ravel() for a in np.meshgrid(np.arange(100), np.arange(100)))
    found = uniform(5, requests, positions)
    assert found.min() >= 0 and found.max() < 1 and len(set(found.tolist())) == 10_000
    counts = np.histogram(found, 10, (0, 1))[0]
    assert counts.min() > 850 and counts.max() < 1150
