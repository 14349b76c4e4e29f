"""Rotary angles: how far each pair of a head's numbers turns from one position to the next."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kvviz.shapes import ModelShape, RopeScaling


def inverse_frequencies(shape: ModelShape) -> Tensor:
    """Radians a position, float64 [d_h / 2], scaled where the shape says so."""
    half = shape.head_dim // 2
    plain = shape.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
    return _llama3(plain, shape.rope_scaling) if shape.rope_scaling else plain


def rope_tables(shape: ModelShape, length: int | None = None) -> tuple[Tensor, Tensor]:
    """cos and sin, float32 [length, d_h / 2]; all positions of the shape by default."""
    count = shape.max_position_embeddings if length is None else length
    angles = torch.outer(torch.arange(count, dtype=torch.float64), inverse_frequencies(shape))
    return angles.cos().float(), angles.sin().float()


def _llama3(plain: Tensor, scaling: RopeScaling) -> Tensor:
    """Short waves as they are, long ones stretched by `factor`, those between blended.

    Source: Llama 3.1's release code, `apply_scaling`.
    """
    turns = scaling.original_max_position_embeddings * plain / (2 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return kept * plain + (1 - kept) * plain / scaling.factor
