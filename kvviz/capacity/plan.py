"""How many slots a GPU has for K and V, and how many requests of a length those hold.

pool = memory x share - weights / tp - activation peak - side buffers, all for one GPU. The
activation peak is modelled, for the largest batch of tokens in a step; so a longer max_len that
prefills in one piece leaves less memory for the pool, and one in chunks leaves more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvviz.capacity.kvshape import KVShape
from kvviz.capacity.sizes import Sizes
from kvviz.errors import CapacityError, ConfigError

GiB = 1 << 30
# Bits a parameter. int4: with a 16-bit scale and a 4-bit zero for each 128 of them.
WEIGHTS = {"bf16": 16.0, "fp16": 16.0, "fp32": 32.0, "fp8": 8.0, "int8": 8.0, "int4": 4.15625}
NO_LIMIT = 1 << 30  # tokens: what stands for the context when the config names none


@dataclass(frozen=True)
class Ask:
    """The machine and the settings. Sizes named _gib are GiB (2^30 bytes) on each GPU.

    weights_gib and activation_gib: measured ones, instead of counting; of all GPUs together and
    of one GPU. side_gib: whatever else an engine keeps beside the pool. batch_tokens: tokens of
    the largest step. sequences: rows of logits. max_len: None for the largest that fits.
    """

    gpu_gib: float = 80.0
    share: float = 0.9
    tp: int = 1
    weights: str = "bf16"
    parameters: float | None = None
    weights_gib: float | None = None
    activation_gib: float | None = None
    side_gib: float = 0.0
    batch_tokens: int = 8192
    sequences: int = 256
    block_size: int = 16
    max_len: int | None = None

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if value is not None and not low <= value <= high:  # also catches nan
                raise ConfigError(f"{name} {value}: {low:g} to {high:g} was expected.")
        if self.weights not in WEIGHTS:
            raise ConfigError(
                f"weights {self.weights!r}: one of {', '.join(WEIGHTS)} was expected."
            )


_RANGES = (
    ("gpu_gib", 0.01, 1 << 20),
    ("share", 0.01, 1.0),
    ("tp", 1, 1024),
    ("parameters", 1, 1e15),
    ("weights_gib", 0, 1 << 20),
    ("activation_gib", 0, 1 << 20),
    ("side_gib", 0, 1 << 20),
    ("batch_tokens", 1, 1 << 24),
    ("sequences", 1, 1 << 20),
    ("block_size", 1, 65536),
    ("max_len", 1, 1 << 40),
)


@dataclass(frozen=True)
class Budget:
    """Bytes of one GPU, in the order in which they are spent. `unused`: what the share leaves."""

    total_bytes: int
    weights_bytes: int
    activation_bytes: int
    side_bytes: int
    pool_bytes: int
    unused_bytes: int


@dataclass(frozen=True)
class Plan:
    """A pool for one model. shape: the part of one GPU."""

    shape: KVShape
    pool_bytes: int
    block_size: int
    max_len: int
    budget: Budget | None = None
    notes: tuple[str, ...] = ()

    @property
    def slot_bytes(self) -> int:
        return self.shape.slot_bytes

    @property
    def pool_slots(self) -> int:
        """Slots when every layer keeps every token: what an engine without window layers has."""
        return self.pool_bytes // self.slot_bytes if self.slot_bytes else 0

    @property
    def blocks(self) -> int:
        return self.pool_slots // self.block_size

    @property
    def max_len_suggested(self) -> int:
        """The longest single request that the pool holds in whole blocks, up to the context."""
        return longest(self.shape, self.pool_bytes, self.block_size)

    def at_once(self, tokens: int) -> int:
        """Requests of this many tokens in the pool, by plain division."""
        return self.pool_bytes // max(1, self.shape.request_bytes(tokens))

    def concurrency(self, tokens: int) -> float:
        """Requests of this many tokens in the pool, as engines print it: not rounded."""
        return self.pool_bytes / max(1, self.shape.request_bytes(tokens))

    def in_blocks(self, tokens: int) -> int:
        """What a request of this many tokens takes in whole blocks, in slots."""
        return -(-tokens // self.block_size) * self.block_size

    def as_dict(self) -> dict[str, Any]:
        """For JSON: bytes of one GPU, slots, and the formulas with their numbers."""
        shape, budget = self.shape, self.budget
        return {
            **shape_dict(shape),
            "pool_bytes": self.pool_bytes,
            "pool_slots": self.pool_slots,
            "blocks": self.blocks,
            "block_size": self.block_size,
            "max_len": self.max_len,
            "max_len_suggested": self.max_len_suggested,
            "request_bytes_at_max_len": shape.request_bytes(self.max_len),
            "concurrency_at_max_len": round(self.concurrency(self.max_len), 4),
            "budget": None if budget is None else dict(vars(budget)),
            "notes": list(self.notes),
        }


def shape_dict(shape: KVShape) -> dict[str, Any]:
    """The part that needs no GPU."""
    return {
        "slot_bytes": shape.slot_bytes,
        "grow_bytes": shape.grow_bytes,
        "constant_bytes": shape.constant_bytes,
        "slot_formula": shape.slot_formula,
        "grow_formula": shape.grow_formula,
        "constant_formula": shape.constant_formula,
        "kv_dtype": shape.kv_dtype,
        "max_context": shape.max_context,
        "warnings": list(shape.warnings),
    }


def make_plan(shape: KVShape, sizes: Sizes, ask: Ask) -> Plan:
    """Raises CapacityError, with the numbers, when weights or max_len do not fit; ConfigError
    when the parameters are not known. shape: of the whole model."""
    budget, notes = _spend(sizes, ask)
    return plan_pool(
        shape.on_rank(ask.tp),
        budget.pool_bytes,
        block_size=ask.block_size,
        max_len=ask.max_len,
        budget=budget,
        notes=notes,
    )


def plan_pool(
    shape: KVShape,
    pool_bytes: int,
    *,
    block_size: int = 16,
    max_len: int | None = None,
    budget: Budget | None = None,
    notes: tuple[str, ...] = (),
) -> Plan:
    """A plan for a pool of known size: the check that an engine makes when it starts. shape: the
    part of one GPU. Raises CapacityError when one request of max_len does not fit."""
    suggested = longest(shape, pool_bytes, block_size)
    if not suggested:
        raise CapacityError(
            f"a pool of {gib(pool_bytes)} does not hold one block of {block_size} tokens "
            f"({shape.request_bytes(block_size):,} bytes). Free memory for it: a higher share, "
            "fewer batch tokens, weights of lower precision or more GPUs."
        )
    if max_len is not None and shape.request_bytes(max_len) > pool_bytes:
        raise CapacityError(
            f"max_len {max_len:,} does not fit: one such request takes "
            f"{gib(shape.request_bytes(max_len))} and the pool has {gib(pool_bytes)} "
            f"({pool_bytes // max(1, shape.slot_bytes):,} slots of {shape.slot_bytes:,} bytes). "
            f"Lower max_len to {suggested:,}, or raise the share."
        )
    if max_len is None:
        max_len = suggested
        if shape.max_context and suggested < shape.max_context:
            notes += (
                f"max_len lowered to {suggested:,}: the model goes up to {shape.max_context:,}, "
                "and one request that long does not fit.",
            )
    elif shape.max_context and max_len > shape.max_context:
        notes += (f"max_len {max_len:,} is beyond the {shape.max_context:,} positions that the "
                  "model was made for.",)  # fmt: skip
    return Plan(shape, pool_bytes, block_size, max_len, budget, notes)


def longest(shape: KVShape, pool_bytes: int, block_size: int) -> int:
    """Tokens of the longest request in whole blocks, at most the context."""
    most = shape.max_context or NO_LIMIT
    alone = shape.longest_request(pool_bytes, most=most + block_size)
    return min(alone // block_size * block_size, most)


def activation_peak(sizes: Sizes, ask: Ask) -> int:
    """Bytes of one GPU, modelled: residual stream and MLP of the largest step in 16 bits, and
    float32 logits of a row a sequence. 0 where the config names no widths."""
    stream = 4 * (sizes.hidden or 0)
    inner = 3 * -(-(sizes.intermediate or 0) // ask.tp)
    logits = ask.sequences * (sizes.vocabulary or 0) * 4
    return ask.batch_tokens * 2 * (stream + inner) + logits


def _spend(sizes: Sizes, ask: Ask) -> tuple[Budget, tuple[str, ...]]:
    notes = []
    total = int(ask.gpu_gib * GiB)
    allowed = int(ask.gpu_gib * ask.share * GiB)
    if ask.weights_gib is not None:
        weights = int(ask.weights_gib * GiB) // ask.tp
    else:
        parameters = ask.parameters or sizes.parameters
        if parameters is None:
            raise ConfigError(
                "how many parameters the model has can't be told from its config. Say it: "
                "--params 8.03 (in 1e9), or the weights' size: --weights-gib."
            )
        if ask.parameters is None:
            notes.append(f"{parameters / 1e9:.2f}e9 parameters, counted from the config.")
        weights = int(parameters * WEIGHTS[ask.weights] / 8) // ask.tp
    if ask.activation_gib is not None:
        activation = int(ask.activation_gib * GiB)
    else:
        activation = activation_peak(sizes, ask)
        if not (sizes.hidden and sizes.intermediate and sizes.vocabulary):
            notes.append("the config lacks widths: the activation peak is too low, or 0.")
    side = int(ask.side_gib * GiB)
    pool = allowed - weights - activation - side
    if pool <= 0:
        raise CapacityError(
            f"no room for a KV pool: {ask.share:g} of {ask.gpu_gib:g} GiB is {gib(allowed)}, and "
            f"weights take {gib(weights)} on each of {ask.tp} GPU{'s' * (ask.tp > 1)}, "
            f"activations {gib(activation)}, side buffers {gib(side)}: {gib(-pool)} too much. "
            "Use more GPUs (tp), weights of lower precision, fewer batch tokens or a higher share."
        )
    return Budget(total, weights, activation, side, pool, total - allowed), tuple(notes)


def gib(count_bytes: float) -> str:
    return f"{count_bytes / GiB:,.2f} GiB"
