"""Plans tried out by the engine, and the command line."""

from __future__ import annotations

import json

import pytest

from kvviz.capacity.kvshape import FULL, STATE, WINDOW, KVShape, LayerGroup
from kvviz.capacity.plan import plan_pool
from kvviz.cli import main
from kvviz.errors import ConfigError
from kvviz.planning.measure import cost, measure

SLOT = LayerGroup(FULL, 1, 1, (1, 1))  # 4 bytes


def pool(slots: int, *groups: LayerGroup, max_len: int = 1024):
    shape = KVShape(groups or (SLOT,))
    return plan_pool(shape, slots * 4, block_size=16, max_len=max_len)


def by_name(measured):
    return {outcome.name: outcome for outcome in measured.outcomes}


@pytest.fixture(scope="module")
def chat():
    return by_name(measure(pool(8192), "chat-and-documents", requests=60))


def test_control_fills_the_pool_exactly():
    """All requests equal: division and replay must agree, and nothing may be external waste."""
    found = by_name(measure(pool(8192, max_len=512), "control", requests=16, rates=False))
    assert {"contiguous, max", "contiguous, pow2", "contiguous, oracle", "paged"} == set(found)
    for name, outcome in found.items():
        assert (outcome.divided, outcome.scale) == (16, 1)
        assert outcome.measured == 16 or (name == "paged" and outcome.preempted > 0)
        assert outcome.textbook["external"] == 0
        assert outcome.refused["fragmented"] == 0


def test_max_reserves_and_holes_refuse(chat):
    """The replay does not show what reservations and holes cost."""
    assert chat["contiguous, max"].slots_mean == 1024
    assert chat["contiguous, max"].divided == 8
    assert 7 < chat["contiguous, max"].measured <= 8
    assert chat["contiguous, oracle"].refused["fragmented"] > 0
    assert chat["paged"].refused["fragmented"] == 0
    assert chat["paged"].measured > chat["contiguous, oracle"].measured > 8
    assert chat["contiguous, max"].paper["internal"] > 0.5 > chat["paged"].paper["internal"]


def test_refusals_start_later_when_less_is_wasted(chat):
    """The rate at which refusals start has nothing to do with the pool."""
    paged, largest = chat["paged"], chat["contiguous, max"]
    assert largest.refuses_from < paged.refuses_from
    for outcome in chat.values():
        assert outcome.clean_up_to < outcome.refuses_from <= 1.1 * outcome.clean_up_to
        assert outcome.refuses_as in ("fragmented", "capacity")


def test_a_huge_pool_is_scaled_and_says_so():
    """A pool for thousands would take minutes, or be shrunk in silence."""
    name = "contiguous, oracle"
    plan = pool(1 << 17, max_len=512)
    (found,) = measure(plan, "control", requests=10, rates=False, methods=[name]).outcomes
    assert (found.divided, found.scale, found.pool_slots) == (256, 4, 1 << 15)
    assert found.measured == 256
    assert "1/4" in found.notes[-1]


def test_windows_are_set_aside():
    """Windows cost nothing in the replay, or more requests run than have one."""
    window = LayerGroup(WINDOW, 1, 1, (1, 1), 512)
    plan = pool(16_384, SLOT, window, max_len=512)
    assert cost(plan.shape, 512) == 4096
    (found,) = measure(plan, "control", requests=10, methods=["paged"]).outcomes
    assert (found.divided, found.measured, found.pool_slots) == (16, 16, 8192)
    assert "16 requests set aside" in found.notes[0]
    assert found.refuses_as == "capacity"


def test_windows_alone_and_states_alone():
    """A cache that stops growing is divided by zero."""
    plan = pool(8192, LayerGroup(WINDOW, 1, 1, (1, 1), 512), max_len=4096)
    name = "contiguous, oracle"
    found = measure(plan, "control", requests=10, rates=False, methods=[name])
    assert found.max_len == 512 and by_name(found)[name].measured == 16
    with pytest.raises(ConfigError, match="nothing of this model's cache grows"):
        measure(pool(8192, LayerGroup(STATE, 1, state_bytes=4)), "control")


def test_a_seed_gives_the_same_numbers():
    """A measurement could not be reproduced."""
    one, two = (measure(pool(4096), "bursts", requests=10, rates=False) for _ in range(2))
    assert one == two
    assert one != measure(pool(4096), "bursts", requests=10, rates=False, seed=2)


def test_bad_wishes_are_told():
    """A traceback instead of a sentence."""
    with pytest.raises(ConfigError, match="no preset"):
        measure(pool(4096), "nope")
    with pytest.raises(ConfigError, match="requests 5"):
        measure(pool(4096), "control", requests=5)


def run(capsys, *words: str) -> tuple[int, str, str]:
    status = main(["capacity", *words])
    return status, *capsys.readouterr()


def test_command_with_a_config(capsys, tmp_path):
    """The command misses a config's own numbers, or invents a pool without weights."""
    path = tmp_path / "config.json"
    path.write_text('{"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32}')
    status, out, err = run(capsys, "--config", str(path), "--json", "-")
    told = json.loads(out)
    assert (status, err, told["slot_bytes"], told["pool_slots"]) == (0, "", 524_288, None)
    assert "--params" in told["notes"][0]
    (tmp_path / "hf_quant_config.json").write_text(
        '{"quantization": {"kv_cache_quant_algo": "FP8"}}'
    )
    status, out, _ = run(capsys, "--config", str(path), "--json", "-", "--params", "6.7")
    told = json.loads(out)
    assert (told["slot_bytes"], told["kv_dtype"]) == (262_144, "fp8")
    assert told["pool_slots"] == told["pool_bytes"] // 262_144 > 0


def test_command_with_a_mix(capsys, tmp_path):
    """Table and file miss the measurement."""
    where = tmp_path / "plan.json"
    status, out, _ = run(
        capsys, "--model", "opt-13b", "--gpu-memory", "40", "--mix", "control", "--requests", "10",
        "--batch-tokens", "2048", "--json", str(where),
    )  # fmt: skip
    assert status == 0
    assert "40 layers × 40 KV heads × 2 × 128 × 2 B = 819,200 B" in out
    assert "contiguous, oracle" in out
    told = json.loads(where.read_text("utf-8"))
    assert [o["name"] for o in told["mix"]["outcomes"]][-1] == "paged"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--model", "nope"), "no model 'nope'"),
        (("--model", "llama-3.1-70b"), "weights take 131.42 GiB"),
        (("--config", "/nowhere/config.json"), "can't be read"),
        (("--model", "llama-3.1-8b", "--tp", "3"), "can't be split over 3 GPUs"),
        (("--model", "llama-3.1-8b", "--kv-dtype", "int3"), "KV dtype 'int3'"),
        (("--model", "llama-3.1-8b", "--gpu-memory", "24", "--max-len", "131072"), "Lower max_len"),
        (("--model", "llama-3.1-8b", "--share", "nan"), "share nan"),
    ],
)
def test_command_refuses_in_one_line(capsys, words, says):
    """A traceback, or a wrong status."""
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert err.startswith("kvviz: ") and err.count("\n") == 1 and says in err
