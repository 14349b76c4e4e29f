"""Pools and start-up checks: figures that people reported from real servers."""

from __future__ import annotations

import pytest

from kvviz.capacity.kvshape import FULL, KVShape, LayerGroup
from kvviz.capacity.plan import Ask, GiB, activation_peak, make_plan, plan_pool
from kvviz.capacity.presets import model
from kvviz.capacity.reader import read_shape
from kvviz.capacity.sizes import Sizes, read_sizes
from kvviz.errors import CapacityError, ConfigError

LLAMA = model("Llama-3.1-8B")
SHAPE = read_shape(LLAMA.config)
SIZES = read_sizes(LLAMA.config)


def llama(**more):
    return make_plan(SHAPE, SIZES, Ask(parameters=LLAMA.parameters, **more))


def test_b01_max_len_above_the_pool():
    """A server would start that can't serve its longest request, or refuse without a number."""
    pool = 229 * 16 * SHAPE.slot_bytes
    with pytest.raises(CapacityError, match=r"max_len 4,096 .*3,664 slots.*max_len to 3,664"):
        plan_pool(SHAPE, pool, max_len=4096)
    plan = plan_pool(SHAPE, pool, max_len=3664)
    assert (plan.blocks, plan.pool_slots, plan.max_len_suggested) == (229, 3664, 3664)
    assert plan.concurrency(3664) == 1.0
    assert plan_pool(SHAPE, pool).max_len == 3664  # none given: the longest that fits, and said
    assert "lowered to 3,664" in plan_pool(SHAPE, pool).notes[0]


def test_b02_blocks_and_concurrency():
    """The report's own figures are not reproduced."""
    pool = 1952 * 16 * SHAPE.slot_bytes
    plan = plan_pool(SHAPE, pool)
    assert (pool / GiB, plan.pool_slots) == (3.8125, 31_232)
    assert round(plan.concurrency(20_000), 2) == 1.56
    shorter = plan_pool(SHAPE, 1478 * 16 * SHAPE.slot_bytes)
    assert (shorter.pool_slots, round(shorter.pool_bytes / GiB, 3)) == (23_648, 2.887)
    assert round(shorter.concurrency(29_000), 2) == 0.82


def test_b02_feasibility_is_not_monotone():
    """20k works, 29k fails, 35k works: the activation peak of a prefill in one piece is not
    charged against the pool."""
    card = {"gpu_gib": 24, "share": 0.9}
    assert llama(**card, max_len=20_000, batch_tokens=20_000).max_len == 20_000
    with pytest.raises(CapacityError, match="max_len 29,000 does not fit"):
        llama(**card, max_len=29_000, batch_tokens=29_000)
    assert llama(**card, max_len=35_000, batch_tokens=512).max_len == 35_000


def test_b03_the_same_slot_on_both_sides():
    """The dtype is counted on one side only."""
    shape = KVShape((LayerGroup(FULL, 24, 8, (64, 64)),))
    assert shape.slot_bytes == 49_152
    assert plan_pool(shape, int(5.59 * GiB)).pool_slots == 122_115
    assert plan_pool(shape, int(10.55 * GiB)).pool_slots == 230_468
    with pytest.raises(CapacityError, match="10.12 GiB and the pool has 5.59 GiB.*49,152 bytes"):
        plan_pool(shape, int(5.59 * GiB), max_len=221_000)


def test_b17_windows():
    """Window layers are paid in full: 59,578 tokens where one request of 600k and more fits."""
    shape = read_shape({**model("Gemma-4-31B").config["text_config"],
                        "max_position_embeddings": 1 << 20})  # fmt: skip
    plan = plan_pool(shape, 50 * GiB)
    assert plan.pool_slots == 59_578
    assert plan.max_len_suggested == (50 * GiB - 838_860_800) // 81_920 // 16 * 16 == 645_120


def test_b36_side_buffers():
    """A buffer beside the pool is forgotten."""
    sizes = Sizes()
    with_side = Ask(gpu_gib=10, share=1, weights_gib=0, side_gib=6.13, activation_gib=0)
    plan = make_plan(SHAPE, sizes, with_side)
    assert (plan.pool_slots, plan.at_once(2048)) == (31_703, 15)
    alone = make_plan(SHAPE, sizes, Ask(gpu_gib=10, share=1, weights_gib=0, activation_gib=0))
    assert (alone.pool_slots, alone.at_once(2048)) == (81_920, 40)


def test_the_parts_sum_up():
    """Memory is spent twice, or lost."""
    plan = llama(gpu_gib=80, share=0.9, side_gib=1, tp=2)
    b = plan.budget
    spent = b.weights_bytes + b.activation_bytes + b.side_bytes + b.pool_bytes + b.unused_bytes
    assert spent == b.total_bytes == 80 * GiB
    assert b.weights_bytes == 8_030_000_000
    assert plan.slot_bytes == 65_536
    told = plan.as_dict()
    assert (told["pool_slots"], told["slot_bytes"]) == (plan.pool_bytes // 65_536, 65_536)


def test_activation_peak():
    """The peak does not follow the batch: 2 bytes x (4 hidden + 3 intermediate) a token."""
    one = activation_peak(SIZES, Ask(batch_tokens=1000))
    two = activation_peak(SIZES, Ask(batch_tokens=2000))
    assert two - one == 1000 * 2 * (4 * 4096 + 3 * 14336)
    assert activation_peak(Sizes(), Ask()) == 0


def test_weights_that_do_not_fit():
    """The refusal names no numbers."""
    big = model("Llama-3.1-70B")
    ask = Ask(parameters=big.parameters)
    with pytest.raises(CapacityError, match=r"72\.00 GiB, and weights take 131\.42 GiB"):
        make_plan(read_shape(big.config), read_sizes(big.config), ask)
    four = Ask(parameters=big.parameters, tp=4)
    assert make_plan(read_shape(big.config), read_sizes(big.config), four).pool_slots > 0


def test_a_pool_below_one_block():
    """A pool of nothing would be divided by."""
    with pytest.raises(CapacityError, match="one block of 16 tokens"):
        plan_pool(SHAPE, 15 * SHAPE.slot_bytes)


def test_unknown_parameters_are_asked_for():
    """Weights of unknown size would count as none."""
    with pytest.raises(ConfigError, match="--params"):
        make_plan(SHAPE, Sizes(), Ask())


@pytest.mark.parametrize(
    ("field", "value"),
    [("gpu_gib", 0), ("gpu_gib", float("nan")), ("share", 1.5), ("tp", 0), ("weights", "int3"),
     ("block_size", 0), ("max_len", 0), ("side_gib", -1), ("parameters", 0)],
)  # fmt: skip
def test_settings_that_can_not_be(field, value):
    """A typing error would become a plan."""
    with pytest.raises(ConfigError, match=field):
        Ask(**{field: value})
