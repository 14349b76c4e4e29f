"""How many slots a pool has: of so much KV memory, or what a GPU has left for it."""

from __future__ import annotations

from typing import NamedTuple

from kvviz.capacity.kvshape import KVShape
from kvviz.capacity.plan import Ask, gib, make_plan
from kvviz.capacity.presets import gpus, model, models
from kvviz.capacity.reader import read_shape
from kvviz.capacity.sizes import read_sizes
from kvviz.errors import ConfigError

GiB = 1 << 30
DEFAULT_MODEL, DEFAULT_GPU = "Llama-3.1-8B", "H100 80G"
DEFAULT_GIB = 16.0
MOST_GIB = 1 << 20


class Pool(NamedTuple):
    """`slots` of `slot_bytes` each on one GPU, and in words where the number comes from."""

    slots: int
    slot_bytes: int
    text: str


def model_names() -> list[str]:
    return list(models())


def gpu_names() -> list[str]:
    return list(gpus())


def slot_bytes_of(name: str) -> int:
    """Bytes of K and V of one token in all layers, in 16 bits. Raises ConfigError for an unknown
    model."""
    return _shape(name).slot_bytes


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


def memory_pool(name: str, memory_gib: float) -> Pool:
    """So many GiB of KV memory. Raises ConfigError."""
    shape = _shape(name)
    slots = slots_in(memory_gib, shape.slot_bytes)
    text = f"{memory_gib:g} GiB of KV memory hold {slots:,} slots of {name}."
    return Pool(slots, shape.slot_bytes, text + _not_shown(shape))


def gpu_pool(name: str, gpu: str, share: float = 0.9, tp: int = 1) -> Pool:
    """What `share` of each of `tp` GPUs leaves after weights and activations, by the capacity
    plan's rule. Raises ConfigError for an unknown name, CapacityError when nothing is left."""
    known = {key.lower(): (key, value) for key, value in gpus().items()}
    if gpu.lower() not in known:
        raise ConfigError(f"no GPU {gpu[:60]!r}. There is: {', '.join(gpus())}.")
    gpu, memory_gib = known[gpu.lower()]
    chosen = model(name)
    plan = make_plan(
        _shape(name),
        read_sizes(chosen.config),
        Ask(
            gpu_gib=memory_gib,
            share=share,
            tp=tp,
            weights=chosen.weights,
            parameters=chosen.parameters,
        ),
    )
    assert plan.budget is not None, "a plan made from a GPU has one"
    text = (
        f"{gpu}: {share:g} of {memory_gib:g} GiB less {gib(plan.budget.weights_bytes)} of weights "
        f"and {gib(plan.budget.activation_bytes)} of activations leave {gib(plan.pool_bytes)}: "
        f"{plan.pool_slots:,} slots of {chosen.name}"
        f"{f' on each of {tp} GPUs' if tp > 1 else ''}."
    )
    return Pool(plan.pool_slots, plan.slot_bytes, text + _not_shown(plan.shape))


def _shape(name: str) -> KVShape:
    return read_shape(model(name).config, kv_dtype="bf16")


def _not_shown(shape: KVShape) -> str:
    """What a slot of one size can't say of this model."""
    if shape.grow_bytes == shape.slot_bytes and not shape.constant_bytes:
        return ""
    return " Every layer is taken to keep every token: windows and states are not replayed."
