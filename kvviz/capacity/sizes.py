"""What a plan needs of a model besides its cache: how many parameters, how wide its layers are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvviz.capacity.fields import MAX_LAYERS, Fields, language_part
from kvviz.capacity.reader import HEADS, HIDDEN, KV_HEADS, LAYERS

INTERMEDIATE = ("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", "ffn_hidden")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_UNGATED = ("opt", "gpt2", "gpt_neox", "falcon", "bloom", "gptj", "mpt", "gpt_bigcode", "phi")


@dataclass(frozen=True)
class Sizes:
    """Widths in elements; None where the config does not say. intermediate: of all experts that
    one token uses. parameters: counted from the shapes, for a plain decoder only."""

    hidden: int | None = None
    intermediate: int | None = None
    vocabulary: int | None = None
    parameters: int | None = None


def read_sizes(config: Mapping[str, Any]) -> Sizes:
    """Raises ConfigError for a value that is no size; what is missing is None."""
    f = language_part(config)
    hidden = f.whole(*HIDDEN, default=None)
    inner = f.whole(*INTERMEDIATE, default=None)
    vocabulary = f.whole("vocab_size", default=None)
    experts = f.whole(*_EXPERTS, default=None)
    active = inner
    if experts:
        each = f.whole("moe_intermediate_size", default=inner)
        active = each and each * f.whole("num_experts_per_tok", default=1)
    return Sizes(hidden, active, vocabulary, _parameters(f, hidden, inner, vocabulary, experts))


def _parameters(
    f: Fields, hidden: int | None, inner: int | None, vocabulary: int | None, experts: int | None
) -> int | None:
    """Embeddings, projections and MLP of a dense decoder; norms and biases are below 0.1 %."""
    heads = f.whole(*HEADS, default=None)
    layers = f.whole(*LAYERS, default=None, high=MAX_LAYERS)
    odd = f.first("kv_lora_rank", "layers_block_type", "hybrid_override_pattern",
                  "linear_num_value_heads")  # fmt: skip
    if experts or odd or not (hidden and inner and vocabulary and heads and layers):
        return None
    width = f.whole("head_dim", default=None, low=0, zero_is_missing=True) or hidden // heads
    kv_heads = f.whole(*KV_HEADS, default=heads)
    attention = 2 * hidden * heads * width + 2 * hidden * kv_heads * width
    matrices = 2 if f.word("model_type") in _UNGATED else 3
    tied = f.flag("tie_word_embeddings", True)
    return vocabulary * hidden * (1 if tied else 2) + layers * (
        attention + matrices * hidden * inner
    )
