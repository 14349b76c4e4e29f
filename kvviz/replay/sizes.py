"""What a slot costs in models that people serve, and how many a GPU's KV memory holds."""

from __future__ import annotations

from kvviz.errors import ConfigError

GiB = 1 << 30
MOST_GIB = 1 << 20

# b_tok = 2 * L * H_kv * d_h * s, in bf16, from each model's config.json
SLOT_BYTES = {
    "Llama-3.1-8B": 2 * 32 * 8 * 128 * 2,
    "Llama-3.1-70B": 2 * 80 * 8 * 128 * 2,
    "Qwen2.5-7B": 2 * 28 * 4 * 128 * 2,
    "Mistral-7B": 2 * 32 * 8 * 128 * 2,
}
DEFAULT_MODEL = "Llama-3.1-8B"


def slot_bytes_of(name: str) -> int:
    """Bytes of K and V of one token in all layers. Raises ConfigError for an unknown model."""
    if name not in SLOT_BYTES:
        raise ConfigError(f"no model {name!r}. There is: {', '.join(SLOT_BYTES)}.")
    return SLOT_BYTES[name]


def slots_in(memory_gib: float, slot_bytes: int) -> int:
    """Whole slots in so much KV memory. Raises ConfigError when that is under 64."""
    if not memory_gib < MOST_GIB:
        raise ConfigError(f"{memory_gib:g} GiB of KV memory: less than {MOST_GIB:,} was expected.")
    slots = int(memory_gib * GiB) // slot_bytes if memory_gib > 0 else 0
    if slots < 64:
        raise ConfigError(
            f"{memory_gib:g} GiB hold {slots} slots of {slot_bytes:,} bytes: at least 64 are "
            "needed. Give more memory or a smaller model."
        )
    return slots
