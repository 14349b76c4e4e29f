"""The command line: what it prints, what it writes, and how it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kvviz import __version__
from kvviz.cli import main
from kvviz.config import RunConfig
from kvviz.live.replayed import Replay
from kvviz.recording.files import load
from kvviz.report import TIMED
from kvviz.ui.frames import head
from kvviz.views.theme import LIGHT
from kvviz.workloads import recorded
from kvviz.workloads.presets import PRESETS

REAL = [
    "memory.slots=1024", "memory.context=256", "mix.long_share=0", "mix.prompt_mean=64",
    "mix.output_mean=24", "engine.check_every=16",
]  # fmt: skip


def run(capsys: pytest.CaptureFixture, *words: str) -> tuple[int, str, str]:
    """(status, standard output, standard error) of `kvviz run`"""
    status = main(["run", *words])
    return status, *capsys.readouterr()


def report(capsys: pytest.CaptureFixture, *words: str) -> dict[str, Any]:
    status, out, err = run(capsys, "--json", "-", *words)
    assert (status, err) == (0, "")
    return json.loads(out)


def untimed(report: dict[str, Any]) -> dict[str, Any]:
    """The report without what is measured."""
    lanes = {
        name: {key: value for key, value in lane.items() if key not in TIMED}
        for name, lane in report["lanes"].items()
    }
    return {**report, "lanes": lanes}


def memory(report: dict[str, Any]) -> dict[str, Any]:
    """What dry and real lanes have in common: all but the way in which tensors are read."""
    lanes = untimed(report)["lanes"]
    return {name: {**lane, "attention": None} for name, lane in lanes.items()}


def test_the_same_seed_gives_the_same_report(capsys):
    """A run could not be reproduced."""
    words = ("--dry", "--steps", "300")
    assert untimed(report(capsys, *words)) == untimed(report(capsys, *words))


def test_another_seed_gives_another_report(capsys):
    """The seed would be ignored."""
    one = report(capsys, "--dry", "--steps", "300", "--set", "seed=1")
    two = report(capsys, "--dry", "--steps", "300", "--set", "seed=2")
    assert one["stream_hash"] != two["stream_hash"]
    assert memory(one) != memory(two)


def test_only_what_is_measured_is_timed():
    """A field that a seed reproduces would escape the comparison, or the other way round."""
    assert {"tokens_per_second", "move_seconds"} == set(TIMED)


def test_the_control_reads_zero(capsys):
    """The gauges would show fragmentation where there can be none."""
    told = report(capsys, "--dry", "--preset", "control", "--steps", "1500")
    for lane in told["lanes"].values():
        assert lane["external_fragmentation"]["max"] == 0
        assert lane["false_refusals"] == 0
        assert lane["finished"] > 0


def test_the_default_mix_fragments_the_contiguous_lane_only(capsys):
    """The demonstration would show nothing."""
    told = report(capsys, "--dry", "--steps", "1000")
    assert told["lanes"]["contiguous"]["false_refusals"] > 0
    assert told["lanes"]["paged"]["false_refusals"] == 0


def test_json_goes_to_a_file_beside_the_table(capsys, tmp_path):
    """The file would be missing, or the table."""
    where = tmp_path / "report.json"
    status, out, err = run(capsys, "--dry", "--steps", "50", "--json", str(where))
    assert (status, err) == (0, "")
    assert json.loads(where.read_text("utf-8"))["steps"] == 50
    assert "refused: fragmented" in out


def test_settings_may_be_given_several_times(capsys):
    """Only the last --set would hold."""
    told = report(
        capsys, "--dry", "--steps", "5", "--set", "seed=5", "paged.block_size=32",
        "--set", "contiguous.fit=best", "--set", "seed=6",
    )  # fmt: skip
    config = told["config"]
    assert (
        config["seed"], config["paged"]["block_size"], config["contiguous"]["fit"],
    ) == (6, 32, "best")  # fmt: skip


def test_settings_lie_over_the_preset(capsys):
    """A preset would undo what was set."""
    words = ("--dry", "--steps", "5", "--preset", "reserve-max", "--set", "memory.slots=4096")
    config = report(capsys, *words)["config"]
    assert (
        config["contiguous"]["reservation"],
        config["memory"]["slots"],
        config["preset"],
    ) == ("max", 4096, "reserve-max")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--set", "a.b=1"], "unknown setting 'a.b'"),
        (["--set", "seed"], "'seed' is no setting"),
        (["--set", "seed=one"], "seed=one: a whole number was expected."),
        (["--set", "mix.rate=nan"], "mix.rate=nan: a value from"),
        (["--set", "contiguous.fit=tight"], "contiguous.fit=tight: one of first, best"),
        (["--set", "memory.context=16384"], "memory.context 16384 is more than the pool"),
        (["--set", "engine.ends=model"], "engine.ends=model needs the model"),
        (["--set", "mix.prompts=trace"], "needs mix.trace"),
        (["--set", "mix.trace=nope"], "no fitted mix 'nope'"),
        (["--set", "mix.trace=../mixes/azure-chat-2023"], "no fitted mix"),
        (["--preset", "nope"], "no preset 'nope'"),
        (["--steps", "0"], "--steps 0: 1 to 5,000,000"),
        (["--steps", "-3"], "--steps -3: 1 to 5,000,000"),
        (["--steps", "2", "--json", "/no/such/folder/report.json"], "can't be written"),
        (["--steps", "2", "--json", "/"], "can't be written"),
        (["--memory-snapshot", "m.pickle"], "a dry run uses none"),
        (["--memory-snapshot", "/no/such/folder/m.pickle"], "There is no folder"),
        (["--set", "memory.share=0.5"], "a dry run has no device. Set memory.slots"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_a_person_can_fix_takes_one_line(capsys, words, told):
    """A typing error would end in a traceback, or with status 0."""
    status, _, err = run(capsys, "--dry", *words)
    assert status == 2
    assert err.count("\n") == 1 and err.endswith("\n")
    assert err.startswith("kvviz: ")
    assert told in err


def test_a_missing_model_takes_one_line(capsys, tmp_path):
    """A wrong model folder would end in a traceback."""
    status, _, err = run(capsys, "--steps", "2", "--set", f"model={tmp_path / 'none'}")
    assert (status, err.count("\n")) == (2, 1)
    assert "none" in err


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what to do without a GPU")
def test_a_memory_snapshot_without_a_gpu_takes_one_line(capsys, tmp_path):
    """The run is made, and fails at its end."""
    status, _, err = run(capsys, "--memory-snapshot", str(tmp_path / "m.pickle"))
    assert (status, err.count("\n")) == (2, 1)
    assert "this runs on the CPU. Leave out --memory-snapshot" in err
    assert not (tmp_path / "m.pickle").exists()


def test_a_pool_that_does_not_fit_takes_one_line(capsys, monkeypatch):
    """A pool that is too large would end in a traceback, or take the machine's memory."""
    monkeypatch.setattr("kvviz.caches.budget.host_memory_bytes", lambda: 1 << 20)
    status, _, err = run(capsys, "--steps", "2")
    assert (status, err.count("\n")) == (2, 1)
    assert "does not fit" in err


def test_train_takes_its_own_options(capsys, tmp_path):
    """`python -m kvviz train --out FOLDER` must reach the trainer, not end in a usage line."""
    with pytest.raises(SystemExit) as ended:
        main(["train", "--help"])
    assert ended.value.code == 0
    assert "--out" in capsys.readouterr().out


def test_very_many_steps_take_one_line_or_run(capsys):
    """The recorder would ask for terabytes before the first step, and end in a traceback."""
    assert main(["run", "--dry", "--steps", str(10**14)]) == 2


def test_presets_are_listed(capsys):
    """One could not find out what there is."""
    assert main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert list(PRESETS) == [line.split()[0] for line in lines]


@pytest.mark.parametrize("words", [[], ["nope"], ["run", "--steps", "x"], ["run", "--nope"]])
def test_argparse_refuses_with_status_2(capsys, words):
    """A wrong word would be taken for something else."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_help_names_every_setting(capsys):
    """A setting could not be found."""
    with pytest.raises(SystemExit) as ended:
        main(["run", "--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for path, value, _ in RunConfig().walk():
        if path not in ("dry", "preset"):
            assert f"{path}={value}" in out


def test_version(capsys):
    """A bug report could not name the version."""
    with pytest.raises(SystemExit):
        main(["--version"])
    assert f"{__version__}\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["run", "--help"],
        ["presets"],
        ["run", "--dry", "--steps", "3"],
        ["scenario", "data/scenarios/01-four-holes.json"],
    ],
)
def test_no_torch_where_none_is_needed(root, words):
    """Help and dry runs would take seconds to load torch."""
    code = (
        "import sys\n"
        "from kvviz.cli import main\n"
        "try:\n"
        f"    main({words!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = {'torch', 'numba', 'streamlit', 'plotly'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_module_is_a_command(root):
    """`python -m kvviz` would do nothing, or lose the status."""
    done = subprocess.run(
        [sys.executable, "-m", "kvviz", "run", "--dry", "--set", "a=1"],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def real(root: Path) -> dict[str, Any]:
    """A run of 60 steps with the model that ships with kvviz."""
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["run", "--steps", "60", "--json", "-", "--set", *REAL]) == 0
    return json.loads(out.getvalue())


def test_a_real_run_compares_and_checks(real):
    """Paging would change what the model says, or the map would not be what is in memory."""
    assert real["requests_compared"] > 0
    assert real["requests_compared"] == real["requests_equal"]
    assert real["map_checks"]["made"] > 0
    assert real["map_checks"]["failed"] == 0
    assert real["device"] != "dry"


def test_a_dry_run_has_the_same_memory(capsys, real):
    """Dry runs would not stand for real ones."""
    dry = report(capsys, "--dry", "--steps", "60", "--set", *REAL)
    assert memory(dry) == memory(real)
    assert dry["stream_hash"] == real["stream_hash"]
    assert dry["map_checks"] == {"made": 0, "failed": 0}
    assert (dry["requests_compared"], dry["device"]) == (0, "dry")


def test_trace_is_described(capsys, tmp_path):
    """One could not see what a file of requests holds, nor which rows were left out."""
    file, rows, out = (tmp_path / name for name in ("trace.csv", "aside.csv", "out.json"))
    file.write_text("arrival,prompt,output\n0,100,10\n2,300,30\n3,x,1\n")
    words = ["trace", str(file), "--json", str(out), "--set-aside", str(rows)]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "rows           2" in shown
    assert "1 tokens are no whole number" in shown
    found = json.loads(out.read_text())
    assert (found["rows"], found["set_aside"], found["span_s"]) == (2, 1, 2.0)
    assert (found["prompt_tokens"], found["output_tokens"]) == (400, 40)
    assert found["format"] == "plain"
    assert rows.read_text().splitlines()[1].startswith("4,prompt,")
    assert main([*words[:2], "--json", "-", "--unit", "ms"]) == 0
    assert json.loads(capsys.readouterr().out)["span_s"] == 0.002


@pytest.mark.parametrize("words", [["nope.csv"], ["README.md"], ["README.md", "--unit", "h"]])
def test_a_bad_trace_ends_with_status_2_and_one_line(capsys, words):
    """A wrong file ends in a traceback."""
    assert main(["trace", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith("kvviz: ")
    assert err.count("\n") == 1


def test_a_run_is_recorded_and_reported(tmp_path, capsys):
    """The file would hold another run, or the report could not be made of it."""
    kept, page = tmp_path / "run.kvviz", tmp_path / "report.html"
    words = ["--dry", "--steps", "60", "--record", str(kept), "--record-every", "2"]
    told = report(capsys, *words)
    read = load(kept)
    assert read.steps.tolist() == list(range(2, 61, 2))
    assert set(read.snapshot("paged", 29).seq_id.tolist()) <= read.looks.keys()
    assert untimed(read.manifest.report) == untimed(told)
    assert main(["report", str(kept), "--out", str(page)]) == 0
    assert "steps recorded, every 2: 2 to 60" in page.read_text(encoding="utf-8")


def test_a_recording_of_a_files_requests_opens_without_the_file(tmp_path, capsys):
    """Whoever is sent the recording has not got the trace: it could not be opened."""
    trace, kept, page = (tmp_path / name for name in ("my.csv", "run.kvviz", "report.html"))
    trace.write_text("arrival,prompt,output\n" + "".join(f"{i},{20 + i},5\n" for i in range(30)))
    report(capsys, "--dry", "--steps", "40", "--trace", str(trace), "--record", str(kept))
    name = load(kept).manifest.config.mix.trace
    recorded._kept.clear()
    assert main(["report", str(kept), "--out", str(page)]) == 0
    assert f"{name} lengths / 1" in json.dumps(head(Replay(load(kept)).at(0), LIGHT))


def test_a_report_makes_its_run(tmp_path, capsys):
    """A CI job would need a recording first."""
    page = tmp_path / "report.html"
    words = ["--dry", "--preset", "control", "--set", "seed=9", "--steps", "40"]
    assert main(["report", *words, "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "kvviz 0.1.0 | control | seed 9 | step 40 |" in text
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "README.md", "--out", "TMP/a.html"], "is no recording of kvviz"),
        (["report", "nope.kvviz", "--out", "TMP/a.html"], "can't be read"),
        (["report", "--dry", "--out", "TMP/nope/a.html"], "There is no folder"),
        (["report", "--dry", "--steps", "0", "--out", "TMP/a.html"], "--steps 0"),
        (["run", "--dry", "--steps", "1", "--record", "TMP"], "is a folder"),
        (
            ["run", "--dry", "--steps", "1", "--record", "TMP/a", "--record-every", "0"],
            "--record-every 0",
        ),
    ],
)
def test_what_can_not_be_recorded_or_reported(tmp_path, capsys, words, said):
    """A run would be made and lost, or end in a traceback."""
    assert main([word.replace("TMP", str(tmp_path)) for word in words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
