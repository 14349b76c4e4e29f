"""The report: its keys, its numbers, and the table made of it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kvviz.engine.lanes import Lanes
from kvviz.report import run_report, table
from tests.helpers import config, events, lanes, small
from tests.live.support import dry

TIMED = ("time_median", "time_p95")
# Documented for those who read the JSON
DOCUMENTED = {
    "admitted": None,
    "finished": None,
    "refused": {"never", "capacity", "fragmented", "queued"},
    "false_refusals": None,
    "preempted": None,
    "slots_moved": None,
    "free": {"mean", "p95", *TIMED},
    "largest_admissible": {"mean", "p95", *TIMED},
    "slot_usage": {"mean", "p95", *TIMED},
    "external_fragmentation": {"mean", "max", *TIMED},
    "tokens_per_second": None,
}
MORE = {
    "turned_away": None,
    "recomputed_tokens": None,
    "running": {"mean", "p95", *TIMED},
    "generated_tokens": None,
    "forward_passes": None,
    "move_seconds": None,
    "attention": None,
}
TOP = {
    "scaling",
    "lanes", "requests_compared", "requests_equal", "map_checks", "stream_hash", "config",
    "device", "steps",
}  # fmt: skip


@pytest.fixture(scope="module")
def run() -> Lanes:
    with lanes(dry({"mix.rate": 0.8, "contiguous.reservation": "exact"})) as built:
        for _ in range(400):
            built.step()
        yield built


def test_the_keys_are_the_documented_ones(run):
    """Whoever reads the JSON would find a key missing."""
    report = json.loads(json.dumps(run_report(run, "dry"), allow_nan=False))
    assert set(report) == TOP
    assert {"contiguous", "paged"} == set(report["lanes"])
    assert {"made", "failed"} == set(report["map_checks"])
    for lane in report["lanes"].values():
        assert {
            key: set(value) if isinstance(value, dict) else None for key, value in lane.items()
        } == {**DOCUMENTED, **MORE}
    assert run.config.as_dict() == report["config"]
    assert (400, "dry", run.stream.hash) == (
        report["steps"],
        report["device"],
        report["stream_hash"],
    )


def test_the_numbers_are_those_of_the_run(run):
    """The report would tell of another run."""
    report = run_report(run, "dry")
    for name, engine in run.engines.items():
        lane, series = report["lanes"][name], engine.recorder.series()
        kinds = ("admit", "finish", "preempt", "drop")
        keys = ("admitted", "finished", "preempted", "turned_away")
        assert {k: len(events(engine, kind)) for k, kind in zip(keys, kinds, strict=True)} == {
            key: lane[key] for key in keys
        }
        verdicts = [e.verdict for e in events(engine, "refuse")]
        assert {kind: verdicts.count(kind) for kind in lane["refused"]} == lane["refused"]
        assert lane["refused"]["fragmented"] == lane["false_refusals"]
        assert sum(e.slots for e in events(engine, "move")) == lane["slots_moved"]
        assert round(float(series.free.mean()), 4) == lane["free"]["mean"]
        assert round(float(np.percentile(series.free, 95)), 4) == lane["free"]["p95"]
        assert round(float((series.written / 512).mean()), 4) == lane["slot_usage"]["mean"]
        some = series.free > 0
        external = 1 - series.admissible[some] / series.free[some]
        assert round(float(external.max()), 4) == lane["external_fragmentation"]["max"]
        held = np.sort(series.free)  # every step is recorded, so each value held for one
        assert held[(len(held) - 1) // 2] == lane["free"]["time_median"]
        assert held[-(-95 * len(held) // 100) - 1] == lane["free"]["time_p95"]
        assert engine.generated == lane["generated_tokens"]
        assert engine.passes == lane["forward_passes"] > 0


def test_shares_lie_between_0_and_1(run):
    """A share would be a percentage, or a count."""
    for lane in run_report(run, "dry")["lanes"].values():
        for share in (*lane["slot_usage"].values(), *lane["external_fragmentation"].values()):
            assert 0 <= share <= 1


def test_no_steps_are_not_applicable():
    """A run without a step would report zeros, or divide by zero."""
    with lanes(small({"dry": True})) as built:
        report = run_report(built, "dry")
    lane = report["lanes"]["paged"]
    never = dict.fromkeys(TIMED)
    assert lane["free"] == {"mean": None, "p95": None, **never}
    assert lane["external_fragmentation"] == {"mean": None, "max": None, **never}
    assert lane["tokens_per_second"] is None
    assert "n/a" in table(report)


def test_a_pool_that_is_always_full_has_no_fragmentation():
    """1 - largest / free would divide by zero."""
    run = config(
        {
            "dry": True, "memory.slots": 64, "memory.context": 64, "mix.arrivals": "closed",
            "mix.concurrency": 1, "mix.prompts": "fixed", "mix.prompt_mean": 60,
            "mix.outputs": "fixed", "mix.output_mean": 5, "mix.long_share": 0,
        }
    )  # fmt: skip
    with lanes(run) as built:
        built.step()
        lane = run_report(built, "dry")["lanes"]["contiguous"]
    assert lane["external_fragmentation"] == {"mean": None, "max": None, **dict.fromkeys(TIMED)}
    assert lane["free"]["mean"] == 0


def test_the_table_has_a_column_for_each_lane(run):
    """The table would be crooked, or without a number that the JSON has."""
    report = run_report(run, "CPU")
    head, *rows = table(report).splitlines()
    assert head.split() == ["contiguous", "paged"]
    body = rows[: rows.index("")]
    assert {len(head)} == {len(row) for row in body}
    cells = {row[: len(row) - 24].strip(): row.split()[-2:] for row in body}
    fragmented = [f"{lane['false_refusals']:,}" for lane in report["lanes"].values()]
    assert fragmented in cells.values()
    tail = "\n".join(rows)
    assert "outputs equal: 0 of 0 requests compared\nmap checked" in tail
    assert f"stream {report['stream_hash']}, 400 steps, CPU" in tail
