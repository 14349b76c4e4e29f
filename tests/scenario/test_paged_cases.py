"""Incidents in paged pools: admission, thrashing, reservations, books. Values derived by hand."""

from __future__ import annotations

import pytest

from tests.scenario.support import paged, steps, told

THRASH = [{"arrive": 0, "prompt": 100, "output": 40, "count": 4}, {"prompt": 250, "output": 10}]
BLOCKED = [{"prompt": 60, "output": 40}, {"prompt": 50, "output": 10}, {"prompt": 10, "output": 5}]


def test_a_longest_request_beyond_the_pool_is_refused_at_start():
    """229 blocks of 16 are 3,664 slots; 4,096 would wait for ever."""
    found = told(blocks=229, layout=paged(), max_len=4096, ops=[["ask", 1]])
    assert not found["start"]["ok"] and found["ops"] == []
    assert (found["start"]["pool"], found["start"]["suggested_max_len"]) == (3664, 3664)
    found = told(blocks=229, layout=paged(), max_len=3664, ops=[["ask", 1]])
    assert (found["start"]["ok"], found["start"]["concurrency"]) == (True, 1.0)
    assert len(found["ops"]) == 1


def test_what_can_never_fit_does_not_block_the_queue():
    """100,000 slots asked of 76,640: never, at once; the request behind runs."""
    requests = [{"prompt": 99_001, "output": 1000}, {"prompt": 100, "output": 5}]
    found = told(blocks=4790, layout=paged(), requests=requests)
    assert steps(found, "verdict") == ["never", "admitted"]
    assert steps(found, "admitted_step") == [None, 1]
    assert steps(found) == [None, 6]
    assert (found["deadlock"], found["stopped"]) == (None, "")


@pytest.mark.parametrize(("slots", "verdict"), [(784, "admitted"), (785, "never"), (1002, "never")])
def test_the_null_block_is_not_capacity(slots, verdict):
    """50 blocks, 49 to hand out: 784 slots and no more."""
    layout = paged(null_block=True)
    found = told(blocks=50, layout=layout, ops=[["allocate", "a", slots]])["ops"][0]
    assert found["verdict"] == verdict
    request = [{"prompt": slots, "output": 1}]
    assert steps(told(blocks=50, layout=layout, requests=request), "verdict") == [verdict]


def test_a_life_that_cannot_fit_is_refused_when_it_is_known():
    """60 + 10 - 1 = 69 slots are 5 blocks of 4."""
    found = told(blocks=4, layout=paged(), requests=[{"prompt": 60, "output": 10}])
    assert (steps(found, "verdict"), found["preemptions"]) == (["never"], 0)


def test_a_life_that_is_not_known_ends_after_one_preemption():
    """Admitted with 4 blocks; the 65th token preempts itself, and then it needs 5 of 4."""
    request = {"prompt": 60, "output": 10, "output_known": False}
    found = told(blocks=4, layout=paged(), requests=[request])
    assert (found["preemptions"], found["recomputed_tokens"]) == (1, 64)
    (one,) = found["requests"]
    assert (one["verdict"], one["state"], one["admitted_step"]) == ("never", "turned away", 1)


@pytest.mark.parametrize(("output", "verdict"), [(17, "admitted"), (18, "never")])
def test_an_exact_fit(output, verdict):
    """48 + 17 - 1 = 64 slots are 4 blocks; one more is 5."""
    found = told(blocks=4, layout=paged(), requests=[{"prompt": 48, "output": output}])
    assert steps(found, "verdict") == [verdict]


@pytest.mark.parametrize(("gate", "count", "tokens"), [("chunk", 6, 624), ("prompt", 1, 176)])
def test_a_gate_on_the_first_chunk_thrashes(gate, count, tokens):
    """Four of 100 + 40 and a prompt of 250 in 604 slots, 16 tokens a step."""
    found = told(
        capacity=604, layout=paged(1, admission=gate), requests=THRASH,
        scheduler={"queue": "strict", "victim": "youngest", "chunk": 16},
    )  # fmt: skip
    assert (found["preemptions"], found["recomputed_tokens"]) == (count, tokens)
    assert (found["steps"], steps(found)[-1]) == (70, 70)
    assert found["requests"][-1]["preemptions"] == count
    assert found["requests"][-1]["recomputed_tokens"] == tokens


@pytest.mark.parametrize(("queue", "third"), [("strict", 46), ("skip", 6)])
def test_the_head_blocks_those_behind(queue, third):
    """The third would fit at once; only skip-ahead lets it."""
    found = told(capacity=100, layout=paged(1), scheduler={"queue": queue}, requests=BLOCKED)
    assert steps(found) == [41, 51, third]
    assert found["requests"][1]["verdict"] == "capacity"
    assert found["requests"][2]["verdict"] == ("queued" if queue == "strict" else "admitted")


def test_parked_holders_lock_the_pool():
    """Two hold 30 of 100 each, the head needs 60: told within one step."""
    requests = [
        {"prompt": 30, "output": 5, "parked": True, "count": 2},
        {"prompt": 60, "output": 1},
    ]
    found = told(capacity=100, layout=paged(1), requests=requests)
    assert found["deadlock"] == {
        "step": 1, "holders": [0, 1], "held": [30, 30], "head": 2, "need": 60, "free": 40,
    }  # fmt: skip
    assert found["steps"] == 1
    assert steps(found, "state") == ["parked", "parked", "waiting"]


def test_parked_holders_do_not_lock_those_that_fit():
    """40 slots are free, 40 are needed: no deadlock, and holders are still there at the end."""
    requests = [
        {"prompt": 30, "output": 5, "parked": True, "count": 2},
        {"prompt": 40, "output": 1},
    ]
    found = told(capacity=100, layout=paged(1), requests=requests)
    assert found["deadlock"] is None
    assert steps(found) == [None, None, 2]


def test_a_full_swap_space_falls_back_to_recomputing():
    """10 blocks and 4 on the host. The youngest (3) is swapped, so 1 is left there; at the next
    block boundary the victim's 4 do not fit: it is computed anew, and nobody waits for ever."""
    found = told(
        blocks=10, layout=paged(), scheduler={"preemption": "swap", "swap_slots": 64},
        requests=[{"prompt": 64, "output": 30}, {"prompt": 48, "output": 30, "count": 2}],
    )  # fmt: skip
    assert (found["preemptions"], found["recomputed_tokens"]) == (2, 64)
    assert found["slots_swapped"] == 48 + 48
    assert [r["preemptions"] for r in found["requests"]] == [0, 1, 1]
    assert [r["recomputed_tokens"] for r in found["requests"]] == [0, 64, 0]
    assert steps(found, "state") == ["finished"] * 3


@pytest.mark.parametrize(
    ("count", "tokens", "blocks", "slots"),
    [(100, 17, 200 / 300, 1700 / 4800), (100, 18, 200 / 300, 0.375), (12, 400, 1.0, 1.0)],
)
def test_block_usage_hides_half_empty_blocks(count, tokens, blocks, slots):
    """66.7 % of the blocks beside 35.4 % of the slots."""
    ops = [["repeat", count, [["allocate", "r{i}", tokens]]]]
    (row,) = told(blocks=300, layout=paged(), ops=ops)["ops"]
    assert row["ok"]
    assert row["usage"] == pytest.approx(blocks, abs=1e-6)
    assert row["written"] / 4800 == pytest.approx(slots, abs=1e-6)


@pytest.mark.parametrize(("block", "blocks", "refused"), [(64, 80, 1), (16, 320, 0), (1, 5120, 0)])
def test_demand_is_counted_in_blocks(block, blocks, refused):
    """81 requests, 1,444 tokens, 5,120 free: with pages of 64 each needs one of 80."""
    ops = [["repeat", 67, [["allocate", "a{i}", 18]]], ["repeat", 14, [["allocate", "b{i}", 17]]]]
    rows = told(blocks=blocks, layout=paged(block), ops=ops)["ops"]
    assert [row["refused"] for row in rows] == [0, refused]
    assert (rows[1]["verdict"], rows[1]["ok"]) == (("capacity", False) if refused else (None, True))
    if block == 16:
        assert rows[1]["used"] == 162 * 16


def test_reserving_the_limit_serves_one_at_a_time():
    """544 blocks each of 1,024: 40 requests in 8,001 steps, no more than 8.2 % ever filled."""
    requests = [{"prompt": 512, "output": 200, "limit": 8192, "count": 40}]
    found = told(blocks=1024, layout=paged(admission="limit"), requests=requests)
    assert (found["steps"], found["peak_units"], found["preemptions"]) == (8001, 544, 0)
    assert 1 - found["held_never_written"] == pytest.approx(0.082, abs=5e-4)


def test_the_same_on_demand():
    """32 start; 10 preemptions, 5,952 tokens anew, 401 steps."""
    requests = [{"prompt": 512, "output": 200, "limit": 8192, "count": 40}]
    found = told(blocks=1024, layout=paged(), requests=requests)
    assert steps(found, "admitted_step").count(1) == 32
    assert (found["preemptions"], found["recomputed_tokens"], found["steps"]) == (10, 5952, 401)


def test_one_huge_limit_serialises_all():
    """12,188 + 100 - 1 reserve 192 blocks of 192; 199 slots of them are written: 98.4 % never."""
    requests = [{"prompt": 100, "output": 100, "limit": 12_188, "count": 8}]
    found = told(blocks=192, layout=paged(64, admission="limit"), requests=requests)
    assert steps(found) == [101, 201, 301, 401, 501, 601, 701, 801]
    assert found["held_never_written"] == pytest.approx(0.984, abs=5e-4)
    found = told(blocks=192, layout=paged(64), requests=requests)
    assert (steps(found), found["peak_units"]) == ([101] * 8, 32)


def test_a_pool_that_is_just_large_enough():
    """4,079 tokens in 16 blocks of 256, which is all there is: admitted, and none held twice."""
    ops = [["allocate", "r", 4079], ["extend", "r", 17], ["extend", "r", 1]]
    rows = told(blocks=16, layout=paged(256), ops=ops)["ops"]
    assert [(row["ok"], row["held"]) for row in rows] == [
        (True, 16 * 256), (True, 16 * 256), (False, 16 * 256),
    ]  # fmt: skip
    rows = told(blocks=32, layout=paged(256), ops=ops)["ops"]
    assert rows[2]["held"] == 17 * 256


def test_several_tokens_a_step():
    """15 + 4 take one block more, 16 + 17 take two; with one free that is refused."""
    ops = [["allocate", "r", 15], ["extend", "r", 4]]
    assert told(blocks=8, layout=paged(), ops=ops)["ops"][1]["held"] == 2 * 16
    ops = [["allocate", "r", 16], ["extend", "r", 17]]
    assert told(blocks=8, layout=paged(), ops=ops)["ops"][1]["held"] == 3 * 16
    row = told(blocks=2, layout=paged(), ops=ops)["ops"][1]
    assert (row["ok"], row["held"], row["written"]) == (False, 16, 16)


def test_victims_chosen_by_age_give_no_page_back():
    """4,096 blocks, 128 in a page, 512 kept. Every eighth: 16 in each page, none returns. By
    page: 4 are kept, 28 return."""
    layout = paged(16, page_blocks=128)
    by_age = [
        ["repeat", 512, [["allocate", "kept{i}", 16], ["allocate", "aged{i}", 112]]],
        ["repeat", 512, [["free", "aged{i}"]]],
    ]
    by_page = [
        ["repeat", 4, [["allocate", "kept{i}", 2048]]],
        ["repeat", 28, [["allocate", "gone{i}", 2048]]],
        ["repeat", 28, [["free", "gone{i}"]]],
    ]
    for ops, pages in ((by_age, 0), (by_page, 28)):
        found = told(blocks=4096, layout=layout, ops=ops)
        assert found["ops"][-1]["used"] == 512 * 16
        assert found["extras"]["returnable"] == pages * 128 * 16


def test_samples_share_blocks_until_they_part():
    """Prompt 40, 4 samples: 2 blocks shared and 4 tails of their own, 3 of them copied (8 slots
    each); 12 blocks without sharing."""
    request = {"prompt": 40, "output": 3, "samples": 4}
    found = told(blocks=20, layout=paged(), requests=[request])
    assert (found["peak_units"], found["slots_copied"]) == (6, 3 * 8)
    assert steps(found, "request") == [0, "0.1", "0.2", "0.3"]
    assert steps(found, "state") == ["finished"] * 4
    alone = told(blocks=20, layout=paged(), requests=[{"prompt": 40, "output": 3, "count": 4}])
    assert alone["peak_units"] == 12
