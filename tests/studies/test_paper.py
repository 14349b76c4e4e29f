"""The paper's figure: the setting, the parts, and how near the published bars the runs come."""

from __future__ import annotations

import json

import numpy as np
import pytest

from kvviz.config import Mix
from kvviz.errors import ConfigError
from kvviz.studies.paper import (
    CONTEXT,
    NEAR,
    PARTS,
    SLOT_BYTES,
    SLOTS,
    SYSTEMS,
    Run,
    empty_report,
    measure,
    run_paper,
)
from kvviz.studies.paper_words import notes, table, text
from kvviz.studies.sharegpt import OUTPUT_MEAN, PROMPT_MEAN, ShareGPTStream, scales
from kvviz.sweeps.kept import Kept
from kvviz.sweeps.pool import Pool

HERE = Pool(jobs=1)


@pytest.fixture(scope="module")
def kept(tmp_path_factory) -> Kept:
    return Kept(tmp_path_factory.mktemp("paper"))


@pytest.fixture(scope="module")
def report(kept):
    """A short run of each system."""
    return run_paper((1,), HERE, steps=2500, kept=kept)


def test_the_setting_is_the_papers():
    """12 GiB at 800 KiB a token: the paper prints 15.7K slots."""
    assert (SLOT_BYTES, SLOTS) == (819_200, 15_728)


def test_lengths_have_the_papers_means_and_fit_its_model():
    """Sizes are what the figure is about."""
    stream = ShareGPTStream(Mix(arrivals="closed", concurrency=9000), CONTEXT, 5)
    requests = stream.take(0, 0, 0)[:8000]
    prompts = np.array([r.prompt_len for r in requests])
    outputs = np.array([r.output_len for r in requests])
    assert pytest.approx(prompts.mean(), rel=0.05) == PROMPT_MEAN
    assert pytest.approx(outputs.mean(), rel=0.05) == OUTPUT_MEAN
    assert max(r.life for r in requests) <= CONTEXT
    assert all(1 < scale < 1.25 for scale in scales(CONTEXT))


def test_a_stream_repeats_itself():
    """A seed would not reproduce the figure."""
    one, two, other = (
        [r.life for r in ShareGPTStream(Mix(arrivals="closed"), CONTEXT, seed).take(0, 0, 0)]
        for seed in (3, 3, 4)
    )
    assert one == two != other


def test_the_parts_are_all_of_the_pool(report):
    """A part would be missing, or counted twice."""
    for name, system in report["systems"].items():
        parts = [system["measured"][part]["mean"] for part in PARTS]
        assert pytest.approx(sum(parts), abs=0.01) == 100, name
        assert min(parts) >= 0


def test_orca_max_holds_seven_regions_and_nothing_else():
    """What follows from arithmetic alone: 7 x 2,048 of 15,728 leave 8.85 %."""
    found = measure(Run("Orca (Max)", 1, 600, 400))
    left = 100 * (SLOTS - 7 * CONTEXT) / SLOTS
    assert left == pytest.approx(found["external and others"], abs=0.6)
    assert pytest.approx(found["batched"], abs=0.05) == 7
    assert found["rounding"] == 0


def test_oracle_wastes_no_output_and_paging_no_more_than_tails(report):
    """The parts would be named wrongly."""
    systems = report["systems"]
    assert systems["Orca (Oracle)"]["measured"]["internal"]["mean"] == 0
    assert systems["vLLM"]["measured"]["token states"]["mean"] > 90
    assert systems["vLLM"]["measured"]["rounding"]["mean"] == 0
    order = [system["measured"]["batched"]["mean"] for system in systems.values()]
    assert sorted(order) == order


def test_the_bars_are_near_the_published_ones(report):
    """Within 5 points of the pool; a short run has a point or two of luck."""
    for name, system in report["systems"].items():
        for part in PARTS:
            assert abs(system["difference"].get(part, 0)) <= NEAR + 2, (name, part)


def test_differences_are_measured_minus_published(report):
    """The table would say the opposite."""
    vllm = report["systems"]["vLLM"]
    assert vllm["published"]["token states"] == 96.3
    gap = vllm["measured"]["token states"]["mean"] - 96.3
    assert gap == pytest.approx(vllm["difference"]["token states"], abs=0.01)
    assert {"token states", "batched"} == set(vllm["difference"])
    row = next(r for r in table(report) if r["system"] == "vLLM" and r["figure"] == "internal")
    assert row["published"] is None and row["difference"] is None and row["measured"] is not None


def test_a_kept_run_is_not_run_again(report, kept):
    """Opening the page again would cost a minute."""
    told = []
    again = run_paper((1,), HERE, steps=2500, kept=kept, told=told.append)
    assert (told[0].done, told[0].kept) == (4, 4)
    assert report == again
    assert len({Run(name, seed).key for name in SYSTEMS for seed in (1, 2)}) == 8
    assert Run("vLLM", 1).key != Run("vLLM", 1, scaled=False).key


def test_words_and_json(report):
    """The page or the command would break, or explain what was not measured."""
    assert len(notes(report)) == 4
    assert "rounding" in notes(report)[2]
    assert "96.30" in text(report) and report["source"] in text(report)
    assert report == json.loads(json.dumps(report))
    assert ["Not measured: " + ", ".join(SYSTEMS) + "."] == notes(empty_report())
    assert len(table(empty_report())) == 20


def test_a_far_bar_is_named(report):
    """The page would claim a match that is none."""
    far = json.loads(json.dumps(report))
    for system in far["systems"].values():
        system["difference"] = dict.fromkeys(system["difference"], 0.0)
    assert "Every bar" in notes(far)[0]
    far["systems"]["Orca (Pow2)"]["difference"]["internal"] = -5.4
    assert "Orca (Pow2), internal (-5.4)" in notes(far)[0]


@pytest.mark.parametrize(("seeds", "steps"), [((), 1000), ((1, 1), 1000), ((1,), 99)])
def test_bad_input_is_told(seeds, steps):
    """It would end in a traceback."""
    with pytest.raises(ConfigError):
        run_paper(seeds, HERE, steps=steps)
