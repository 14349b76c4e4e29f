"""What the figures say to somebody who does not see them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kvviz.records import HOLE
from kvviz.views import findings as said
from tests.views.made import snapshot

NAN = float("nan")
HOLED = snapshot([(1024, 1024, 1), (1024, 0, HOLE)] * 4)  # baseline F0's holes
PAGED = snapshot([(16, 16, 1), (16, 0, HOLE), (16, 10, 2), (16, 0, HOLE)], grain=16)


def test_the_charts_of_a_step():
    """The name of a chart would not tell what it shows."""
    found = said.charts_said({"contiguous": HOLED}, 2048)
    assert found["time"].endswith("contiguous 4,096 of 8,192 slots free, 1,024 admissible.")
    assert found["size"] == "How many requests of 2,048 slots fit now: contiguous 0."
    assert found["holes"] == "Holes by size: contiguous 4 holes, the largest 1,024."
    assert found["unusable"].endswith("cannot use: contiguous 100 %.")
    assert "token states 50 %" in found["bytes"] and "external waste 50 %" in found["bytes"]


def test_paged_memory_is_of_use_in_blocks():
    """Blocks apart would be called useless."""
    found = said.charts_said({"paged": PAGED}, 32)
    assert found["size"].endswith("paged 1.")
    assert found["unusable"].endswith("paged 0 %.")


def test_a_whole_run_tells_its_worst_step():
    """A picture of a thousand steps would be called by its kind only."""
    full = replace(snapshot([(1024, 1024, 1)] * 8), step=10)
    worst, after = replace(HOLED, step=20), replace(snapshot([(8192, 0, HOLE)]), step=30)
    assert said.run_said("contiguous", [full, worst, after]) == (
        "Time by address, contiguous, steps 10 to 30: 0 to 8,192 slots free; "
        "most holes at step 20: 4 holes, the largest 1,024."
    )


def test_columns_tell_of_their_holes():
    """A scenario's rows would all be called the same."""
    assert said.columns_said(HOLED.columns) == "4,096 slots free, 4 holes, the largest 1,024"


def test_nothing_free():
    """A full pool would end in a division by zero."""
    full = snapshot([(8, 8, 1)])
    found = said.charts_said({"a": full}, None)
    assert "a no hole" in found["holes"] and "nothing is free" in found["unusable"]


def test_a_map_tells_of_the_refusal():
    """The lesson's fourth step would not be heard."""
    assert said.map_said("i refused", HOLED, 2048) == (
        "i refused: 4,096 of 8,192 slots free, 1,024 admissible, 4 holes, the largest 1,024; "
        "a request of 2,048 is refused"
    )


def test_a_replay():
    """The charts of a replay would have no finding."""
    lanes = {
        "paged": {
            "series": {"free": [10, 30], "admissible": [10, 20], "running": [1, 3]},
            "refused": {"never": 0, "capacity": 2, "fragmented": 0, "queued": 1},
            "waited": {"p50_s": 0.25, "p99_s": 12.0},
        }
    }
    assert said.admissible_said(lanes).endswith("paged 20 free, 15 admissible.")
    assert said.over_trace_said(lanes, "running").endswith("paged 3 at most, 2 on average.")
    assert "2 capacity" in said.refusals_said(lanes) and "never" not in said.refusals_said(lanes)
    assert said.waits_said(lanes).endswith("half within 0.2 s, 99 % within 12.0 s.")
    nobody = {"paged": {**lanes["paged"], "waited": {"p50_s": None, "p99_s": None}}}
    assert said.waits_said(nobody).endswith("paged nobody was admitted.")


def test_a_sweep():
    """Its ends would be named wrong, or a missing cell count."""
    means = {"paged": np.array([NAN, 0.5, 0.25]), "buddy": np.array([1.0, 1.0, 1.0])}
    assert said.lines_said("b", [1, 2, 4], means, "Usage") == (
        "Usage, over b: paged lowest 0.25 at 4, highest 0.5 at 2; buddy 1 everywhere."
    )
    table = np.array([[1.0, 2.0], [3.0, NAN]])
    assert said.heat_said(("a", "b"), ([8, 9], ["x", "y"]), table, "paged", "Usage") == (
        "Usage, over a and b, paged: lowest 1 at 8 and x, highest 3 at 9 and x."
    )
    assert "not known" in said.lines_said("b", [1], {"paged": np.array([NAN])}, "Usage")


def test_plan_and_paper():
    """Published and measured would be mixed up."""
    assert said.memory_said({"weights": 15.0, "KV pool": 50.25, "not used": 0.0}, 80.0) == (
        "Of one GPU's 80.0 GiB: weights 15.0, KV pool 50.2."
    )
    outcomes = [{"name": "paged", "divided": 12.5, "measured": None}]
    assert said.concurrency_said(outcomes).endswith("12.5 by plain division, not measured.")
    system = {"published": {"batched": 7.0}, "measured": {"batched": {"mean": 7.2}}}
    report = {"systems": {"Orca": system, "vLLM": {**system, "measured": None}}}
    assert said.paper_said(report, "batched", "") == (
        "Batched: Orca 7.0 published, 7.2 measured; vLLM 7.0 published, not measured yet."
    )
