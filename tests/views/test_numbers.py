"""Every number of a lane: value, formula with the live numbers, both parts, source, reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kvviz.metrics import unusable_index
from kvviz.records import HOLE, Counters
from kvviz.views.number import Number
from kvviz.views.numbers import GROUPS, HEADLINE, numbers, side_by_side
from kvviz.views.theme import LIGHT
from kvviz.views.unusable import unusable
from tests.helpers import DRY_PRESETS
from tests.views.made import lanes_after, shots_after, snapshot

TORN = [(900, 900, 1), (1500, 0, HOLE), (900, 900, 2), (1200, 0, HOLE)]
PAGES = [(16, 16, 1), (16, 0, HOLE), (16, 16, 7), (16, 0, HOLE)]
F0 = [row for i in range(4) for row in ((1024, 0, HOLE), (1024, 1024, i))]
HALF_EMPTY = [row for i in range(100) for row in ((16, 16, i), (16, 1, i))]


def named(found: list[Number]) -> dict[str, Number]:
    names = {each.name: each for each in found}
    assert len(names) == len(found), "two numbers of one name"
    return names


def test_the_baseline_with_its_formulas_filled_in() -> None:
    """A formula would show other numbers than those that made the value."""
    found = named(numbers(snapshot(F0), 2048))
    assert {name: found[name].value for name in found if found[name].group != HEADLINE} == {
        "next request, r": "2,048",
        "external fragmentation": "75.0 %",
        "unusable free space index": "1.000",
        "fragmentation index": "fragmented, 0.250",
        "requests of r that fit now": "0 of 2",
        "holes": "4",
        "holes a live region": "1.00",
        "unused memory": "50.0 %, rule 33.3 %",
        "to be sure without moves": "16,400, 4.00 x",
        "slot usage": "50.0 %",
        "block usage": "n/a",
        "internal waste, textbook": "0.0 %",
        "token states": "50.0 %",
        "reservation": "0.0 %",
        "internal": "0.0 %",
        "external and others": "50.0 %",
        "block tables": "n/a",
        "moved so far": "0 in 0.0 ms",
        "books": "balanced",
    }
    assert {name: found[name].formula for name in list(found)[6:11]} == {
        "external fragmentation": "1 - max h / F = 1 - 1,024 / 4,096",
        "unusable free space index": "(F - r * sum floor(h / r)) / F = (4,096 - 2,048 x 0) / 4,096",
        "fragmentation index": "1 - (1 + F / r) / H = 1 - (1 + 4,096 / 2,048) / 4",
        "requests of r that fit now": "sum floor(h / r) for r = 2,048 = 0",
        "holes": "maximal runs of free slots",
    }
    assert found["holes"].note == "in aligned pieces of 2^k: 4 x 1,024"
    assert found["to be sure without moves"].formula == (
        "N = M * (1 + log2(n) / 2) - n + 1 = 256 x (1 + 7 / 2) - 128 + 1 = 1,025 units of 16 slots"
    )
    assert found["books"].formula == "used + free = total: 4,096 + 4,096 = 8,192"


def test_what_a_paged_pool_has_no_use_for_is_not_zero() -> None:
    """The paged lane would be praised with zeros for what it can't even have."""
    found = named(numbers(snapshot(PAGES, grain=16), 32))
    absent = {name for name, each in found.items() if each.kind == "absent"}
    assert absent == {
        "tokens/s",
        "external fragmentation",
        "fragmentation index",
        "holes a live region",
        "unused memory",
        "to be sure without moves",
        "moved so far",
    }
    for name in absent:
        assert found[name].value == "n/a"
        assert found[name].note.startswith("n/a because ")
        assert (found[name].numerator, found[name].denominator) == ("", "")
    assert found["unusable free space index"].value == "0.000"
    assert found["free runs"].note == "in aligned pieces of 2^k: 2 x 16"
    assert found["requests of r that fit now"].formula.endswith("= floor(2 / 2)")


def test_block_usage_stands_beside_slot_usage() -> None:
    """100 sequences of 17 tokens in 300 blocks of 16."""
    found = named(numbers(snapshot(HALF_EMPTY + [(16, 0, HOLE)] * 100, grain=16), None))
    assert (found["block usage"].value, found["slot usage"].value) == ("66.7 %", "35.4 %")
    assert found["block usage"].formula.endswith("= 200 / 300")
    assert found["slot usage"].formula.endswith("= 1,700 / 4,800")
    assert found["block tables"].formula.endswith("= 200 x 4")
    assert found["internal waste, textbook"].value == "46.9 %"


@pytest.mark.parametrize(
    ("sizes", "ask", "value", "part"),
    [
        ((256, 256), 400, "fragmented, 0.000", "-0.140, shown clipped"),
        ((183, 183, 182), 2048, "capacity, 0.577", "F < r"),
        ((44,) * 300, 50, "fragmented, 0.117", "F >= r > max h"),
        ((600, 10), 600, "n/a", "a hole of 600 holds 600"),
        ((), 5, "capacity, 0.000", "F < r"),
    ],
)
def test_the_fragmentation_index_comes_with_its_class(sizes, ask, value, part) -> None:
    """Lack of memory with 0.577 would read as fragmentation."""
    rows = [(8, 8, 0)]
    for owner, size in enumerate(sizes, 1):
        rows += [(size, 0, HOLE), (8, 8, owner)]
    found = named(numbers(snapshot(rows), ask))["fragmentation index"]
    assert found.value == value
    assert part in found.note


def test_without_a_queue_there_is_no_r() -> None:
    """The indices would be those of some size that nobody asked for."""
    found = named(numbers(snapshot(TORN), None))
    needs_r = (
        "next request, r",
        "unusable free space index",
        "fragmentation index",
        "requests of r that fit now",
    )
    for name in needs_r:
        assert found[name].note == "n/a because no request waits, so there is no r"


def test_the_fifty_percent_rule_needs_a_layout_that_counts() -> None:
    """p would be 0 where nobody counted, and the rule 0 with it."""
    shot = snapshot(TORN)
    found = named(numbers(shot, None))["holes a live region"]
    assert (found.value, found.formula) == ("1.00", "H / N = 2 / 2 beside p / 2")
    assert "p / 2 is n/a because this layout counts no allocations" in found.note
    counted = replace(shot, extras={"allocations": 8, "allocations_with_remainder": 6})
    found = named(numbers(counted, None))["holes a live region"]
    assert (found.value, found.formula) == (
        "1.00, rule 0.38",
        "H / N = 2 / 2 beside p / 2 = 6 / 8 / 2",
    )


def test_books_that_do_not_balance_say_so_with_their_sign() -> None:
    """A loss would pass for a full pool."""
    shot = snapshot(TORN)
    for held, value in (([900, 841], "-59 lost"), ([900, 5124], "+4,224 too many")):
        broken = replace(shot, seq_held=np.array(held))
        assert named(numbers(broken, None))["books"].value == value


def test_what_only_one_layout_counts_is_n_a_in_the_others() -> None:
    """A column would slip under another lane's name, or be filled with 0."""
    plain = snapshot(TORN)
    counting = replace(
        snapshot(PAGES, grain=16), extras={"cached_blocks": 1, "resident_bytes": 3 << 20}
    )
    table = side_by_side(
        {"contiguous": numbers(plain, 5), "other": numbers(counting, 5)},
    )
    costs = table["What the layout costs"]
    assert costs["cached blocks"]["other"].value == "1"
    assert costs["resident memory"]["other"].value == "3.0 MiB"
    assert costs["cached blocks"]["contiguous"].kind == "absent"
    assert costs["books"]["other"].formula == "used + free + cached = total: 32 + 16 + 16 = 64"
    holes = table["Holes: measured beside the rules"]["holes"]
    assert {lane: each.name for lane, each in holes.items()} == {
        "contiguous": "holes",
        "other": "free runs",
    }
    for group, rows in table.items():
        for cells in rows.values():
            assert list(cells) == ["contiguous", "other"]
            assert {each.group for each in cells.values()} == {group}


def test_headline_of_a_contiguous_lane() -> None:
    """A number would stand there without its formula and what went into it."""
    refused = {"never": 1, "capacity": 2, "fragmented": 3, "queued": 1400}
    counters = Counters(
        finished=5, preempted=6, recomputed=7000, slots_moved=8000, move_seconds=0.0123,
        running=2, waiting=1, refused=refused,
    )  # fmt: skip
    shot = snapshot(TORN, counters=counters)
    found = named(numbers(shot, None, {"tokens_per_second": 1234.6}))
    assert {name: each.value for name, each in found.items() if each.group == HEADLINE} == {
        "free": "2,700",
        "largest admissible": "1,500",
        "false refusals": "3 of 1,406",
        "tokens/s": "1,235",
        "running": "2",
    }
    assert found["free"].denominator == "slots in the pool: 4,500"
    assert found["free"].note.startswith("64 bytes a slot")
    assert found["largest admissible"].formula == "max h = 1,500"
    assert found["false refusals"].note.endswith("never 1, capacity 2, fragmented 3, queued 1,400")
    for part in ("1 wait", "5 finished", "6 preempted", "7,000 tokens"):
        assert part in found["running"].note
    assert found["moved so far"].value == "8,000 in 12.3 ms"
    assert found["tokens/s"].kind == found["moved so far"].kind == "measured"


def test_headline_of_blocks() -> None:
    """The paged lane's number would be explained by holes, with blocks of 1 too."""
    found = named(numbers(snapshot(PAGES, grain=16), None))
    assert found["largest admissible"].formula == "free blocks x B = 2 x 16 = 32"
    built = lanes_after("chat-and-documents", 100, ("paged.block_size", 1))
    found = named(numbers(built.engines["paged"].snapshot(), None))
    assert found["largest admissible"].formula.startswith("free blocks x B = ")


@pytest.mark.parametrize("grain", [1, 16])
def test_a_full_pool_and_an_empty_one(grain: int) -> None:
    """Nothing free would be called unfragmented, or a quotient would fail."""
    full = named(numbers(snapshot([(16, 16, 1)], grain=grain), 8))
    assert full["external fragmentation"].value == "n/a"
    assert full["unusable free space index"].value == "1.000"
    assert full["false refusals"].value == "0 of 0"
    empty = named(numbers(snapshot([(16, 0, HOLE)], grain=grain), 8))
    assert empty["internal waste, textbook"].value == "n/a"
    assert empty["to be sure without moves"].value == "n/a"
    assert empty["requests of r that fit now"].value == ("2 of 2" if grain == 1 else "1 of 2")


@pytest.mark.parametrize("preset", DRY_PRESETS)
def test_every_number_explains_itself(preset: str) -> None:
    """A hover would open an empty box, or two lanes would have other rows."""
    for steps in (0, 250):
        shots = shots_after(preset, steps)
        lists = {name: numbers(shot, 300) for name, shot in shots.items()}
        for found in lists.values():
            assert list(dict.fromkeys(each.group for each in found)) == list(GROUPS)
            for each in named(found).values():
                assert each.value and each.formula and each.source
                assert each.kind in ("counted", "measured", "rule", "absent")
                assert (each.value == "n/a") == (each.kind == "absent")
                assert "nan" not in f"{each.value} {each.formula} {each.note}".split()
                if each.kind != "absent":
                    assert each.numerator
            assert named(found)["books"].value == "balanced"
        rows = [r for group in side_by_side(lists).values() for r in group.values()]
        assert all(list(cells) == list(shots) for cells in rows)


def test_the_curve_shows_the_index_of_each_size() -> None:
    """The chart and the table would tell two numbers of one size."""
    figure = unusable({"contiguous": snapshot(F0)}, LIGHT, largest=2048, ask=2048)
    trace = figure["data"][0]
    expected = [unusable_index(np.array([1024] * 4), size) for size in trace["x"]]
    assert trace["y"] == pytest.approx(expected, abs=6e-4)
    assert (trace["x"][-1], trace["y"][-1]) == (2048, 1.0)
    assert figure["layout"]["shapes"][0]["x0"] == 2048
    exact = unusable({"contiguous": snapshot(F0)}, LIGHT, largest=2048, ask=777)["data"][0]
    assert dict(zip(exact["x"], exact["y"], strict=True))[777] == round(247 / 1024, 3)
    assert unusable({}, LIGHT, largest=2048, ask=None)["layout"]["shapes"] == []
