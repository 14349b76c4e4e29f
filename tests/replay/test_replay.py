"""Loads, lanes, reports and the command."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from kvviz.caches.layouts import LANES
from kvviz.cli import main
from kvviz.errors import ConfigError, TraceError
from kvviz.replay.job import MapJob, ReplayJob
from kvviz.replay.lanes import base_config, base_of, lane_specs
from kvviz.replay.load import draw_mix, from_preset, from_trace, load_of
from kvviz.replay.replay import replay, replay_report, snapshot_at, table
from kvviz.replay.result import POINTS
from kvviz.replay.sizes import gpu_pool, slot_bytes_of, slots_in
from kvviz.replay.support import why_plain
from kvviz.workloads.lengths import load_mix
from kvviz.workloads.traces.read import read_trace
from tests.replay.made import base, drawn, load

CSV = b"TIMESTAMP,ContextTokens,GeneratedTokens\n" + b"".join(
    b"2023-11-16 18:15:%02d.5,%d,%d\n" % (i, 40 + 7 * i, 10 + i) for i in range(40)
)


def test_importing_loads_no_numba(root):
    """First paint would pay for a compiler that most pages never use."""
    code = (
        "import sys, kvviz.replay.replay, kvviz.replay.job, kvviz.replay.command\n"
        "print([m for m in ('numba', 'torch', 'streamlit') if m in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"


def test_seconds_become_steps():
    """Requests would arrive at other times than the trace says."""
    found = from_trace(read_trace(CSV), slots=4096, step_ms=250)
    assert found.arrival.tolist() == [4 * i for i in range(40)]
    assert found.prompt.tolist() == [40 + 7 * i for i in range(40)]
    assert found.context == 512  # the longest lives 313 + 49 - 1 slots
    assert found.about["format"] == "azure-2023"
    assert found.request(3).limit == 512 - 61 + 1


def test_a_preset_replays_its_own_requests():
    """The preset's replay would be of other requests than its run."""
    found = from_preset("bursts", 300)
    assert found.rows == 300
    assert (np.diff(found.arrival) >= 0).all()
    with pytest.raises(ConfigError, match="keeps a fixed number"):
        from_preset("control", 10)


def test_a_mix_has_its_lengths():
    """A million requests would be drawn from something else."""
    mix = load_mix("azure-chat-2023")
    drawn = draw_mix("azure-chat-2023", 20_000, 10.0)
    middle = mix.knots_pct.index(50)
    assert abs(np.median(drawn.prompt) / mix.prompt_knots[middle] - 1) < 0.05
    assert abs(np.median(drawn.output) / mix.output_knots[middle] - 1) < 0.05
    assert abs(drawn.span_s / 2000 - 1) < 0.1
    assert np.array_equal(drawn.prompt, draw_mix("azure-chat-2023", 20_000, 10.0).prompt)
    with pytest.raises(ConfigError, match="give a rate"):
        draw_mix("sharegpt-chat", 10)


def test_a_trace_without_arrivals_needs_a_rate():
    """All requests would come at once, or never."""
    trace = read_trace(b"[[100, 20], [50, 30], [70, 10]]")
    with pytest.raises(TraceError, match="--rate"):
        from_trace(trace, slots=4096)
    assert from_trace(trace, slots=4096, rate=5.0).arrival[0] == 0


def test_lane_words():
    """A lane would run with other settings than it was given."""
    shared = base_config(4096, 512, ["engine.max_running=7"])
    one, two = lane_specs(["paged", "best=contiguous,contiguous.fit=best"], shared)
    assert (one.name, one.layout, one.config.engine.max_running) == ("paged", "paged", 7)
    assert (two.name, two.lane, two.config.contiguous.fit) == ("best", "contiguous", "best")
    assert [spec.name for spec in lane_specs([], shared)] == ["contiguous", "paged"]
    for words, text in (
        (["nope"], "there is no 'nope'"),
        (["paged", "paged"], "two lanes are called"),
        (["a=paged,x"], "write a.b=value"),
    ):
        with pytest.raises(ConfigError, match=text):
            lane_specs(words, shared)


@pytest.mark.parametrize(
    ("lane", "changes", "why"),
    [
        ("paged", {}, ""),
        ("contiguous", {"contiguous.order": "lifo", "contiguous.fit": "best"}, ""),
        ("contiguous", {"contiguous.order": "lifo"}, "contiguous.order=lifo"),
        ("buddy", {}, "contiguous.allocator=buddy"),
        ("prefix", {}, "paged.prefix_sharing"),
        ("paged", {"engine.queue": "skip"}, "engine.queue=skip"),
        ("cells", {}, "the cells layout"),
    ],
)
def test_what_must_run_step_by_step(lane, changes, why):
    """A policy that the kernels do not know would be replayed as another."""
    (spec,) = lane_specs([lane], base(changes))
    assert why_plain(spec.layout, spec.config) == why


def test_every_lane_is_replayed():
    """A lane would fail, or lose requests on its way."""
    names = list(LANES)
    made = drawn(4, rows=25)
    specs = lane_specs(names, base())
    results = replay(made, specs, 2048)
    assert list(results) == names
    for name, result in results.items():
        counts = result.counts
        assert counts["finished"] + counts["dropped"] == 25, name
        assert result.way == ("events" if name in ("contiguous", "paged") else "steps")
    report = replay_report(made, specs, results, 2048)
    assert json.loads(json.dumps(report))["lanes"].keys() == results.keys()
    assert "dry: 25 requests" in table(report)


def test_numbers_by_hand():
    """The report's numbers would not mean what they say."""
    made = load([(0, 10, 3), (0, 10, 3), (1, 10, 3)], context=32)
    config = base({"paged.block_size": 4, "engine.max_running": 2}, slots=64, context=32)
    (spec,) = lane_specs(["paged"], config)
    report = replay_report(made, [spec], replay(made, [spec], 1), 1)["lanes"]["paged"]
    # Two run in steps 0 to 2 and hold 10, 11, 12 slots; the third in steps 3 to 5.
    assert report["steps"] == 6
    assert report["admitted"] == report["finished"] == 3
    assert report["generated_tokens"] == 9
    assert report["waited"]["p99_steps"] == pytest.approx(1.96)
    assert report["waited"]["p50_steps"] == 0
    # After each step: 2, 2, 0, 1, 1, 0 run; 3 blocks of 4 each
    assert report["running"] == {"mean": 1.0, "p95": 2}
    assert report["free"]["mean"] == 64 - 12
    assert report["slot_usage"]["mean"] == pytest.approx((20 + 22 + 10 + 11) / 6 / 64, abs=1e-4)
    assert report["series"]["running"] == [2, 2, 0, 1, 1, 0]
    assert report["waste"]["textbook"]["internal"] == pytest.approx(1.5 / 64, abs=1e-4)
    assert report["waste"]["paper"]["external"] == 0


def test_series_are_thinned():
    """A long trace would be too much for a page."""
    made = load([(i * 50, 20, 40) for i in range(200)])
    (spec,) = lane_specs(["paged"], base())
    result = replay(made, [spec], 1)["paged"]
    assert result.steps > 2 * POINTS
    step = result.column("step")
    assert POINTS // 2 <= len(step) <= POINTS
    assert len(set(np.diff(step).tolist())) == 1


def test_watch_can_stop():
    """Cancel would do nothing."""
    seen = []
    specs = lane_specs(["paged", "contiguous"], base())
    assert replay(drawn(4), specs, 1, lambda p: seen.append(p) or len(seen) < 2) == {}
    assert (seen[0].done, seen[0].of) == (0, 120)
    job = ReplayJob(drawn(4), specs, 1)
    job.cancel()
    job.start().join(60)
    assert (job.report, job.error) == (None, "")


def test_a_map_in_a_thread():
    """The page would show no map."""
    (spec,) = lane_specs(["contiguous"], base())
    job = MapJob(drawn(4), spec, 1, 30)
    job.join(60)
    assert job.snapshot.step == 30
    assert job.snapshot.columns.owner.tolist() == (
        snapshot_at(drawn(4), spec, 1, 30).columns.owner.tolist()
    )


def hashed(rows, block, slots=4096):
    """A load of Mooncake's format: rows of (ms, prompt, output, hash ids)."""
    lines = [
        json.dumps({"timestamp": at, "input_length": p, "output_length": o, "hash_ids": list(ids)})
        for at, p, o, ids in rows
    ]
    trace = read_trace("\n".join(lines).encode())
    return from_trace(trace, slots=slots, step_ms=1), trace.prefix.block


def test_hash_ids_are_prefixes():
    """Mooncake's requests would share nothing in a replay.

    Blocks of 16. The second prompt has both hashed pieces of the first and 88 tokens more; the
    third has the first piece only, with another one after it; the fourth is the first again: its
    last token is computed, so 63 of its 64 blocks are found.
    """
    rows = [
        (0, 1024, 4, (7, 8)),
        (2000, 1112, 4, (7, 8, 9)),
        (4000, 1024, 4, (7, 5)),
        (6000, 1024, 4, (7, 8)),
    ]
    found, block = hashed(rows, 512)
    assert block == 512
    assert [found.request(row).shared for row in (0, 1)] == [
        ((7, 512), (8, 512)),
        ((7, 512), (8, 512), (9, 88)),
    ]
    specs = lane_specs(["prefix", "paged"], base_config(4096, found.context))
    lanes = replay_report(found, specs, replay(found, specs, 1), 1)["lanes"]
    assert lanes["prefix"]["cached_tokens"] == 1024 + 512 + 63 * 16
    assert lanes["paged"]["cached_tokens"] == 0
    assert found.first(2).request(1).shared == found.request(1).shared


def test_shared_slots_are_counted_once():
    """Slot usage would be above what is in memory, and internal waste below 0."""
    rows = [(at, 512, 200, (1,)) for at in range(8)]
    found, _ = hashed(rows, 512)
    specs = lane_specs(["prefix"], base_config(4096, found.context))
    result = replay(found, specs, 1)["prefix"]
    held = result.usable - result.column("free")
    assert (result.column("written") <= held).all()
    assert result.column("written").max() < 8 * 512
    assert replay_report(found, specs, {"prefix": result}, 1)["lanes"]["prefix"]["waste"][
        "textbook"
    ]["internal"] >= 0  # fmt: skip


def test_a_preset_keeps_what_it_shares():
    """Prefixes, samples and priorities of a preset would be lost in its replay."""
    found = from_preset("system-prompts", 20)
    assert any(found.request(row).shared for row in range(20))
    samples = from_preset("parallel-samples", 6)
    assert samples.request(0).samples == 4
    assert "mix.samples=4" in why_plain("paged", base({"mix.samples": 4}))
    specs = lane_specs(["paged"], base_of("parallel-samples", None, samples.context))
    result = replay(samples, specs, 1)["paged"]
    assert result.counts["finished"] == 24 and (result.done >= 0).all()


def test_times_can_be_changed():
    """Idle time would fill the picture; rounded stamps would come as bursts that nobody sent."""
    rows = [(at, 20, 2, (at,)) for at in (0, 0, 0, 3000, 90_000)]
    lines = [
        json.dumps({"timestamp": a, "input_length": p, "output_length": o, "hash_ids": list(ids)})
        for a, p, o, ids in rows
    ]
    trace = read_trace("\n".join(lines).encode())
    found = from_trace(trace, slots=64, step_ms=100, cap_s=6, spread_s=3)
    assert found.arrival.tolist() == [0, 10, 20, 30, 90]
    assert any("idle gaps were cut to 6 s" in note for note in found.notes)
    assert any("spread evenly" in note for note in found.notes)


def test_a_gpus_pool():
    """The pool would hold what the weights need.

    A100 80G: 0.9 x 80 GiB - 2 x 8.03e9 bytes - activations, over 131,072 bytes a slot; with two
    GPUs each holds half of the weights and half of each slot.
    """
    one, two = gpu_pool("Llama-3.1-8B", "a100 80g"), gpu_pool("Llama-3.1-8B", "A100 80G", tp=2)
    assert one.slot_bytes == 131_072 and two.slot_bytes == 65_536
    left = 0.9 * 80 * 2**30 - 2 * 8.03e9
    assert 0.97 * left < one.slots * 131_072 < left
    assert two.slots > 2 * one.slots
    assert "windows and states are not replayed" in gpu_pool("Gemma-3-12B", "H100 80G").text
    with pytest.raises(ConfigError, match="There is: T4"):
        gpu_pool("Llama-3.1-8B", "abacus")


def test_sizes():
    """40 GiB of Llama-3.1-8B would be another number of slots."""
    assert slot_bytes_of("Llama-3.1-8B") == 131_072
    assert slots_in(40, 131_072) == 327_680
    with pytest.raises(ConfigError, match="There is: OPT-13B"):
        slot_bytes_of("nope")
    with pytest.raises(ConfigError, match="at least 64"):
        slots_in(0, 131_072)


def test_command(tmp_path, capsys):
    """The command line would print or write something else."""
    trace = tmp_path / "requests.csv"
    trace.write_bytes(CSV + b"2023-11-16 18:16:00,0,0\n")
    out = tmp_path / "out.json"
    words = ["replay", str(trace), "--slots", "1024", "--json", str(out), "--requests", "30"]
    assert main([*words, "--lane", "paged", "--lane", "b=contiguous,contiguous.fit=best"]) == 0
    report = json.loads(out.read_text())
    assert report["trace"]["rows"] == 30
    assert report["trace"]["set_aside"] == 1
    assert set(report["lanes"]) == {"paged", "b"}
    lane = report["lanes"]["paged"]
    assert lane["finished"] == 30
    assert {"refused", "waited", "waste", "series", "steps", "seconds"} <= lane.keys()
    assert "steps of 30 ms are assumed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nope.csv"], "nope.csv can't be opened"),
        (["azure-chat-2023", "--requests", "0"], "0 requests"),
        (["azure-chat-2023", "--slots", "9", "--gpu-memory", "1"], "give one"),
        (["azure-chat-2023", "--gpu", "L4", "--slots", "9"], "--slots and --gpu both say"),
        (["azure-chat-2023", "--gpu", "x"], "no GPU 'x'"),
        (["azure-chat-2023", "--gpu-memory", "0"], "at least 64"),
        (["control"], "keeps a fixed number"),
        (["bursts", "--lane", "x=y"], "there is no 'y'"),
    ],
)
def test_bad_words(words, message, capsys):
    """A typing error would end in a traceback."""
    assert main(["replay", *words]) == 2
    assert message in capsys.readouterr().err


def test_check_command(capsys):
    """The check would pass without comparing anything."""
    assert main(["replay", "bursts", "--requests", "40", "--check"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert all(": equal (" in line for line in lines)


def test_load_of_a_mix():
    """A mix would be scaled down as its preset is."""
    found = load_of("azure-chat-2023", slots=1 << 20, rows=50, rate=2.0)
    assert found.context >= found.life.max()
    assert found.about["format"] == "mix azure-chat-2023"
