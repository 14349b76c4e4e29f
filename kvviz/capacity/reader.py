"""From a config.json to a KVShape. Field names and their aliases as engines read them.

Sources: transformers' configs, and vLLM's list of aliases. An explicit head_dim goes before
hidden / heads; a latent (DeepSeek's attention) is kv_lora_rank + qk_rope_head_dim, once a layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kvviz.capacity.fields import MAX_LAYERS, MAX_TOKENS, Fields, language_part
from kvviz.capacity.kvshape import FULL, LATENT, STATE, WINDOW, KVShape, LayerGroup
from kvviz.capacity.layers import STATES, layer_kinds, window_of
from kvviz.capacity.quantised import kv_dtype_of
from kvviz.capacity.states import recurrent_state
from kvviz.errors import ConfigError

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HIDDEN = ("hidden_size", "n_embd", "d_model", "hidden_dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = (
    "num_key_value_heads",
    "n_head_kv",
    "num_kv_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
HEAD_DIM = ("head_dim", "kv_channels", "attention_head_size")
CONTEXT = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len",
           "seq_length", "n_ctx")  # fmt: skip


def read_shape(
    config: Mapping[str, Any],
    *,
    kv_dtype: str = "auto",
    hf_quant: Mapping[str, Any] | None = None,
) -> KVShape:
    """kv_dtype: a name in KV_DTYPES, or auto: what the config's quantisation says, else 16 bits.
    hf_quant: the object in hf_quant_config.json, if there is one beside it.

    Raises ConfigError, with the field's name, for whatever is missing or not understood.
    """
    f = language_part(config)
    if f.flag("is_encoder_decoder", False):
        raise ConfigError(
            "is_encoder_decoder is true: the cache of cross attention is not counted by kvviz. "
            "Give a decoder-only model."
        )
    layers = f.whole(*LAYERS, high=MAX_LAYERS)
    context = f.whole(*CONTEXT, default=None, high=MAX_TOKENS)
    kinds = _within(layer_kinds(f, layers), window_of(f), context)
    counts = Counter(kinds)
    groups = _groups(f, counts)
    if not groups:
        raise ConfigError("no layer keeps anything of a request; is this a decoder's config?")
    chosen, told = kv_dtype_of(kv_dtype, Fields(config), f, hf_quant)
    return KVShape(tuple(groups), chosen, context, tuple(told + _unusual(f)))


def _within(kinds: list[str], window: int, context: int | None) -> list[str]:
    """A window that no request outgrows keeps every token."""
    if context is None or window < context:
        return kinds
    return [FULL if kind == WINDOW else kind for kind in kinds]


def _groups(f: Fields, counts: Counter) -> list[LayerGroup]:
    found = []
    if f.whole("kv_lora_rank", default=None, zero_is_missing=True):
        parts = (f.whole("kv_lora_rank"), f.whole("qk_rope_head_dim"))
        if counts[WINDOW]:
            raise ConfigError(f"{f.path('kv_lora_rank')}: a latent in window layers is not known.")
        if counts[FULL]:
            found.append(LayerGroup(LATENT, counts[FULL], 1, parts))
    else:
        if counts[FULL]:
            found.append(LayerGroup(FULL, counts[FULL], *_heads(f, "global")))
        if counts[WINDOW]:
            heads, parts = _heads(f, "swa")
            found.append(LayerGroup(WINDOW, counts[WINDOW], heads, parts, window_of(f)))
    for kind in STATES:
        if counts[kind]:
            state = recurrent_state(kind, f)
            found.append(
                LayerGroup(STATE, counts[kind], state_bytes=state.bytes, state=state.formula)
            )
    return found


def _heads(f: Fields, side: str) -> tuple[int, tuple[int, int]]:
    """(KV heads, (d_k, d_v)) of full layers (side global) or window layers (side swa), which
    some families give a geometry of their own."""
    kv_heads = f.whole(
        f"num_{side}_key_value_heads", f"{side}_num_key_value_heads", default=None
    ) or _kv_heads(f)
    width = f.whole(f"{side}_head_dim", default=None) or _head_dim(f)
    value = f.whole(f"{side}_v_head_dim", "v_head_dim", default=None, zero_is_missing=True)
    return kv_heads, (width, value or width)


def _kv_heads(f: Fields) -> int:
    nested = f.inside("attn_config") if isinstance(f.raw.get("attn_config"), Mapping) else None
    if nested is not None and nested.has("kv_n_heads"):  # MPT, DBRX
        return nested.whole("kv_n_heads")
    heads = f.whole(*HEADS, default=None)
    grouped = f.flag("multi_query_attention", True)  # ChatGLM: its group count may lie idle
    kv_heads = f.whole(*(KV_HEADS if grouped else KV_HEADS[:3]), default=None)
    if kv_heads is None and f.flag("multi_query", False):  # Falcon-7B, StarCoder
        kv_heads = 1
    if kv_heads is None:
        kv_heads = f.whole(*HEADS) if heads is None else heads
    if heads is not None and (kv_heads > heads or heads % kv_heads):
        name = f.path(f.first(*KV_HEADS) or KV_HEADS[0])
        raise ConfigError(
            f"{name} is {kv_heads}, which does not divide the {heads} attention heads "
            f"({f.path(f.first(*HEADS) or HEADS[0])})."
        )
    return kv_heads


def _head_dim(f: Fields) -> int:
    given = f.whole(*HEAD_DIM, default=None, low=0, zero_is_missing=True)
    if given:
        return given
    hidden, heads = f.whole(*HIDDEN), f.whole(*HEADS)
    if hidden % heads:
        raise ConfigError(
            f"{f.path('head_dim')} is missing, and {hidden} / {heads} heads is no whole number."
        )
    return hidden // heads


def _unusual(f: Fields) -> list[str]:
    """Sentences about a config that was understood and still deserves a second look."""
    found = []
    if f.has("index_head_dim"):
        found.append("index_head_dim: the keys of the sparse-attention indexer are not counted.")
    if f.has("kv_lora_rank") and f.has("qk_rope_head_dim"):
        rope, nope = f.raw["qk_rope_head_dim"], f.raw.get("qk_nope_head_dim")
        if rope == nope:
            found.append(
                f"qk_rope_head_dim {rope} equals qk_nope_head_dim: some loaders overwrite the one "
                "with the other; compare with the file as published."
            )
    if f.has("num_kv_shared_layers") and f.raw["num_kv_shared_layers"]:
        found.append(
            f"the last {f.raw['num_kv_shared_layers']} layers reuse another layer's K and V and "
            "are counted as none."
        )
    if f.flag("attention_k_eq_v", False):
        found.append("attention_k_eq_v: K and V may be one tensor; counted as two, as engines do.")
    return found
