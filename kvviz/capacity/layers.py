"""Which layer of a decoder keeps what: every token, a window of them, or a state."""

from __future__ import annotations

from kvviz.capacity.fields import Fields
from kvviz.capacity.kvshape import FULL, WINDOW
from kvviz.errors import ConfigError

NOTHING = "nothing"
STATES = ("linear", "mamba", "conv")

_NAMES = {
    "full_attention": FULL,
    "attention": FULL,
    "global_attention": FULL,
    "sliding_attention": WINDOW,
    "local_attention": WINDOW,
    "chunked_attention": WINDOW,
    "linear_attention": "linear",
    "mamba": "mamba",
    "mamba2": "mamba",
    "conv": "conv",
    "mlp": NOTHING,
    "moe": NOTHING,
}
_LETTERS = {"*": FULL, "M": "mamba", "-": NOTHING, "E": NOTHING}
# Windows of these families alternate although the config of an early checkpoint does not say so.
_PATTERNS = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6, "cohere2": 4, "gpt_oss": 2}
# They change what a layer keeps in ways not known here: a guess would be off by any factor.
_NOT_UNDERSTOOD = (
    "attn_type_list",
    "block_configs",
    "block_types",
    "linear_attn_config",
    "layer_group_size",
    "num_kv_heads_per_layer",
    "hybrid_layer_pattern",
    "compress_ratios",
)


def layer_kinds(f: Fields, layers: int) -> list[str]:
    """full, window, nothing or one of STATES, a name a layer. Raises ConfigError."""
    for name in _NOT_UNDERSTOOD:
        if f.has(name):
            raise ConfigError(
                f"{f.path(name)} says what each layer keeps in a way that kvviz does not "
                "understand. Remove it and set layer_types instead."
            )
    kinds = _listed(f, layers) or _every_nth(f, layers)
    return kinds[: layers - _borrowing(f, layers)]


def window_of(f: Fields) -> int:
    """Tokens kept by a window layer, 0 when the config has no window in use."""
    if not f.flag("use_sliding_window", True):
        return 0
    return f.whole(
        "sliding_window", "attention_chunk_size", "sliding_window_size", default=0, low=0,
        high=1 << 31, zero_is_missing=True,
    )  # fmt: skip


def _listed(f: Fields, layers: int) -> list[str] | None:
    """Kinds that the config lists one by one."""
    name = f.first("layer_types", "layers_block_type")
    if name is not None:
        words = f.words(name)
        unknown = [word for word in words if word not in _NAMES]
        if unknown:
            raise ConfigError(
                f"{f.path(name)}: {unknown[0][:40]!r} is no kind of layer that kvviz knows. "
                f"Known: {', '.join(_NAMES)}."
            )
        kinds = [_NAMES[word] for word in words]
    elif f.has("hybrid_override_pattern"):
        name = "hybrid_override_pattern"
        letters = f.word(name)
        if set(letters) - set(_LETTERS):
            raise ConfigError(f"{f.path(name)}: only {' '.join(_LETTERS)} are understood.")
        kinds = [_LETTERS[letter] for letter in letters]
    else:
        return None
    if len(kinds) != layers:
        raise ConfigError(f"{f.path(name)} lists {len(kinds):,} layers; there are {layers:,}.")
    if WINDOW in kinds and not window_of(f):
        if f.first("sliding_window", "attention_chunk_size"):  # switched off, or 0
            return [FULL if kind == WINDOW else kind for kind in kinds]
        raise ConfigError(
            f"{f.path('sliding_window')} is missing, and {f.path(name)} has layers that slide."
        )
    return kinds


def _every_nth(f: Fields, layers: int) -> list[str]:
    """Kinds that follow from a period."""
    interval = f.whole("full_attention_interval", default=None, high=layers)
    if interval:
        return [FULL if (i + 1) % interval == 0 else "linear" for i in range(layers)]
    period = f.whole("attn_layer_period", default=None, high=layers)
    if period:
        offset = f.whole("attn_layer_offset", default=0, low=0, high=layers)
        return [FULL if i % period == offset else "mamba" for i in range(layers)]
    if not window_of(f):
        return [FULL] * layers
    nth = f.whole("sliding_window_pattern", "_sliding_window_pattern", default=None, high=layers)
    nth = nth or _PATTERNS.get(f.word("model_type"))
    if nth:
        return [FULL if (i + 1) % nth == 0 else WINDOW for i in range(layers)]
    whole = f.whole("max_window_layers", default=0, low=0)
    return [FULL if i < whole else WINDOW for i in range(layers)]


def _borrowing(f: Fields, layers: int) -> int:
    """Layers at the end that read another layer's K and V and keep none."""
    return f.whole("num_kv_shared_layers", default=0, low=0, high=layers - 1)
