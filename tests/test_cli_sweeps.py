"""`kvviz sweep` and `kvviz paper`."""

from __future__ import annotations

import csv
import json

import pytest

from kvviz.cli import main

SMALL = ["sweep", "--grid", "paged.block_size=8,64", "--steps", "60", "--jobs", "1"]


def test_sweep_writes_json_and_csv(capsys, tmp_path):
    """A file would be missing, or hold another sweep."""
    files = [str(tmp_path / name) for name in ("out.json", "out.csv")]
    words = [*SMALL, "--seeds", "1,2", "--lanes", "paged", "--keep", str(tmp_path / "kept")]
    assert main([*words, "--json", files[0], "--csv", files[1]]) == 0
    assert "4 run now" in capsys.readouterr().out
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["axes"] == {"paged.block_size": [8, 64]} and told["complete"]
    with open(files[1], newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["lane"] for row in found] == ["paged"] * 4
    assert main([*words, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["read_from_disk"] == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--grid", "paged.block_size=0"], "1 to 256"),
        (["--seeds", "x"], "numbers like"),
        (["--steps", "0"], "1,000,000"),
        (["--backend", "dask"], "address"),
        (["--preset", "nope"], "no preset"),
    ],
)
def test_bad_words_end_with_one_line(capsys, tmp_path, words, said):
    """They would end in a traceback."""
    assert main(["sweep", "--keep", str(tmp_path), *words]) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1


def test_paper_prints_the_table(capsys, tmp_path):
    """The command would print nothing, or its JSON would lack the words."""
    file = tmp_path / "paper.json"
    words = ["paper", "--seeds", "1", "--steps", "100", "--jobs", "1", "--json", str(file)]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "Orca (Pow2)" in out and "SOSP '23" in out
    told = json.loads(file.read_text())
    assert told["setting"]["slots"] == 15_728 and len(told["notes"]) == 4
