"""Requests as in the PagedAttention paper's experiments on OPT-13B and ShareGPT.

The paper (SOSP '23, figure 11) tells mean lengths of 161.31 prompt and 337.99 output tokens. Its
filter is not told; the model serves 2,048 positions, so longer conversations are left out here, as
its benchmark does, and not cut. What is left of our ShareGPT-like mix is 7 and 5 percent short of
those means, and is scaled to them.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from kvviz.config import Mix
from kvviz.workloads.lengths import FittedMix, load_mix
from kvviz.workloads.stream import RequestStream

MIX = "sharegpt-chat"
PROMPT_MEAN, OUTPUT_MEAN = 161.31, 337.99
_DRAWS = 20_000


class ShareGPTStream(RequestStream):
    """Prompt + output - 1 never exceeds the context: a longer pair is drawn again."""

    def __init__(self, mix: Mix, context: int, seed: int, *, scaled: bool = True) -> None:
        super().__init__(mix, context, seed)
        self._lengths_of = load_mix(MIX)
        self._scales = scales(context) if scaled else (1.0, 1.0)

    def _lengths(self, row: object, u: np.ndarray) -> tuple[int, int]:
        rng = np.random.default_rng([self._seed, self.drawn])
        while True:
            pair = _pair(self._lengths_of, *rng.uniform(1e-9, 1 - 1e-9, 2))
            prompt, output = (
                max(1, round(value * scale))
                for value, scale in zip(pair, self._scales, strict=True)
            )
            if prompt + output - 1 <= self._context:
                return prompt, output


@lru_cache(maxsize=4)
def scales(context: int) -> tuple[float, float]:
    """Factors of prompts and outputs that give the paper's means, once pairs longer than the
    context are left out: a fixed point, for the factors change what is left out."""
    mix = load_mix(MIX)
    draws = np.random.default_rng(0).uniform(1e-9, 1 - 1e-9, (_DRAWS, 2))
    lengths = np.array([_pair(mix, *u) for u in draws])
    found = np.ones(2)
    for _ in range(60):
        fits = (lengths * found).sum(axis=1) - 1 <= context
        found *= np.array([PROMPT_MEAN, OUTPUT_MEAN]) / (lengths[fits] * found).mean(axis=0)
    return float(found[0]), float(found[1])


def _pair(mix: FittedMix, u_prompt: float, u_free: float) -> tuple[float, float]:
    return mix.prompt(u_prompt), mix.output(mix.correlate(u_prompt, u_free))
