"""What fixes a training run, and what it measured. Numbers only."""

from __future__ import annotations

import math
from dataclasses import dataclass

PEAK_RATE = 3e-3
FINAL_SHARE = 0.02
WARMUP_STEPS = 100
WEIGHT_DECAY = 0.1
CLIP_NORM = 1.0
# Attention over a short window is cheaper, so most steps use one of the same number of tokens.
SHORT_CONTEXT = 256
SHORT_SHARE = 0.75
REPORT_STEPS = 100
PROBE_WINDOWS = 32
EVAL_BATCH = 8
BYTE_ORDER = 3
DEFAULT_STEPS = 3000
DEFAULT_SEED = 1
DEFAULT_BATCH = 8
DEFAULT_CONTEXT = 1024


@dataclass(frozen=True)
class LossRow:
    """Bits per byte at one step: training since the last row, held-out on the probe windows."""

    step: int
    train: float
    held_out: float


@dataclass(frozen=True)
class Plan:
    """What fixes a run, apart from the corpus. `batch` windows of `context` tokens a step."""

    steps: int
    seed: int
    batch: int
    context: int

    def window(self, step: int) -> tuple[int, int]:
        """(windows, tokens each) of a step: short windows first, full ones at the end."""
        if step >= SHORT_SHARE * self.steps:
            return self.batch, self.context
        short = min(SHORT_CONTEXT, self.context)
        return self.batch * self.context // short, short

    def rate(self, step: int) -> float:
        """Learning rate: linear warm-up, then a cosine down to FINAL_SHARE of the peak."""
        warmup = min(WARMUP_STEPS, max(1, self.steps // 10))
        if step < warmup:
            return PEAK_RATE * (step + 1) / warmup
        progress = (step - warmup) / max(1, self.steps - warmup)
        cosine = 0.5 * (1.0 + math.cos(math.pi * progress))
        return PEAK_RATE * (FINAL_SHARE + (1.0 - FINAL_SHARE) * cosine)


@dataclass(frozen=True)
class TrainReport:
    """What a run measured, in float32. `tokens` counts those trained on, `seconds` all of it.

    `train` is the last row's. `held_out` and `byte_model` are bits per byte over every held-out
    document; `longer` gives (window, bits per byte) on the probe for windows past the trained one.
    """

    plan: Plan
    steps_done: int
    tokens: int
    seconds: float
    train: float
    held_out: float
    byte_model: float
    longer: tuple[tuple[int, float], ...]
    rows: tuple[LossRow, ...]
