"""Recurrent states: what a layer without attention keeps of a request, in bytes.

Shapes as in transformers' and vLLM's modules of the same names. The recurrent part is kept in
float32 unless the config names a dtype; the convolution's tail in 16 bits.
"""

from __future__ import annotations

from typing import NamedTuple

from kvviz.capacity.fields import Fields
from kvviz.errors import ConfigError

_SSM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_CONV_BYTES = 2


class State(NamedTuple):
    """Of one layer and request: bytes, and the formula with numbers."""

    bytes: int
    formula: str


def recurrent_state(kind: str, f: Fields) -> State:
    """kind: linear, mamba or conv. Raises ConfigError that names what is missing."""
    return {"linear": _delta_net, "mamba": _mamba, "conv": _short_conv}[kind](f)


def _delta_net(f: Fields) -> State:
    """Gated delta net (Qwen3-Next, Qwen3.5): a d_k x d_v matrix for each value head."""
    keys, values = f.whole("linear_num_key_heads"), f.whole("linear_num_value_heads")
    d_k, d_v = f.whole("linear_key_head_dim"), f.whole("linear_value_head_dim")
    return _with_conv(f, values * d_k * d_v, 2 * keys * d_k + values * d_v,
                      f.whole("linear_conv_kernel_dim"))  # fmt: skip


def _mamba(f: Fields) -> State:
    size = f.whole("mamba_d_state", "ssm_state_size", "state_size")
    kernel = f.whole("mamba_d_conv", "conv_kernel")
    heads = f.whole("mamba_n_heads", "mamba_num_heads", default=None)
    if heads is None:  # Mamba-1: one channel of state for each inner channel
        inner = f.whole("mamba_expand") * f.whole("hidden_size", "d_model")
        return _with_conv(f, inner * size, inner, kernel)
    width = f.whole("mamba_d_head", "mamba_head_dim")
    groups = f.whole("mamba_n_groups", "n_groups", default=1)
    return _with_conv(f, heads * width * size, heads * width + 2 * groups * size, kernel)


def _short_conv(f: Fields) -> State:
    """LFM2: the last inputs of a short convolution."""
    width, tail = f.whole("hidden_size"), f.whole("conv_L_cache")
    return State(width * tail * _CONV_BYTES, f"{width:,} × {tail} × {_CONV_BYTES} B")


def _with_conv(f: Fields, recurrent: int, channels: int, kernel: int) -> State:
    word = f.word("mamba_ssm_dtype") or "float32"
    if word not in _SSM_BYTES:
        raise ConfigError(
            f"{f.path('mamba_ssm_dtype')} is {word!r}; one of {', '.join(_SSM_BYTES)} was expected."
        )
    wide = _SSM_BYTES[word]
    return State(
        recurrent * wide + channels * (kernel - 1) * _CONV_BYTES,
        f"({recurrent:,} × {wide} B + {channels:,} × {kernel - 1} × {_CONV_BYTES} B)",
    )
