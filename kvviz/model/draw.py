"""Drawing tokens on the device, so that no logits travel to the host: 49,152 of them a sequence.

The draw is `kernels.sample`'s: it depends on (seed, request, position) only.
"""

from __future__ import annotations

import numpy as np
import torch

_NEVER_DRAWN = -40.0  # see `kernels.sample`


def draw(
    logits: torch.Tensor,
    temperature: float,
    seed: int,
    requests: np.ndarray,
    positions: np.ndarray,
    banned: np.ndarray,
) -> np.ndarray:
    """A token int64 [n] for each row of logits [n, vocab], which are not kept; 0 is greedy."""
    logits = logits.float()
    if len(banned):
        logits = logits.index_fill(1, torch.from_numpy(banned).to(logits.device), -torch.inf)
    if temperature <= 0:
        return logits.argmax(1).cpu().numpy()
    scaled = (logits - logits.amax(1, keepdim=True)).double() / temperature
    weights = torch.where(scaled > _NEVER_DRAWN, scaled.exp(), 0.0)
    sums = weights.cumsum(1)
    aim = torch.from_numpy(uniform(seed, requests, positions)).to(logits.device)[:, None]
    # The first token whose sum passes the aim; the likeliest where rounding leaves none
    found = torch.searchsorted(sums, aim * sums[:, -1:], right=True)[:, 0]
    last = logits.shape[1] - 1
    found = torch.where(found > last, logits.argmax(1), found.clamp(max=last))
    return found.cpu().numpy()


def uniform(seed: int, requests: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """float64 [n] in [0, 1): splitmix64 of the three numbers."""
    start = np.uint64(seed * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF)
    key = _mix64(_mix64(start ^ requests.astype(np.uint64)) ^ positions.astype(np.uint64))
    return (key >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def _mix64(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
