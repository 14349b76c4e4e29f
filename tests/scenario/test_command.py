"""`python -m kvviz scenario FILE [--json [FILE]]`."""

from __future__ import annotations

import io
import json
import sys

import pytest

from kvviz.cli import main
from kvviz.scenario.examples import FOLDER
from kvviz.scenario.text import MAX_BYTES

FILE = str(FOLDER / "01-four-holes.json")


def run(capsys, *words: str) -> tuple[int, str, str]:
    status = main(["scenario", *words])
    return status, *capsys.readouterr()


def test_a_table_by_default(capsys):
    """One would have to read JSON."""
    status, out, err = run(capsys, FILE)
    assert (status, err) == (0, "")
    assert out.startswith("Four holes of 1,024\n")
    assert "13. ask 2,048: needs 2,048 of 8,192 slots; 4,096 are free" in out


def test_json_alone_goes_to_standard_output(capsys):
    """`--json` without a file would be a usage error, or mixed with the table."""
    status, out, _ = run(capsys, FILE, "--json")
    told = json.loads(out)
    assert status == 0
    assert (told["kind"], told["capacity"], told["layout"]["fit"]) == ("ops", 8192, "first")
    assert told["ops"][12]["verdict"] == "fragmented"


def test_json_to_a_file_beside_the_table(capsys, tmp_path):
    """The file or the table would be missing."""
    where = tmp_path / "report.json"
    status, out, _ = run(capsys, FILE, "--json", str(where))
    assert status == 0 and out.startswith("Four holes")
    assert json.loads(where.read_text("utf-8"))["title"] == "Four holes of 1,024"


def test_standard_input(capsys, monkeypatch):
    """A scenario could not be piped in."""
    text = b'{"capacity": 8, "layout": {"kind": "contiguous"}, "ops": [["ask", 9]]}'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    status, out, _ = run(capsys, "-")
    assert status == 0 and "never" in out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '{"capacity": 8,\n "layout": {"kind": "heap"}, "ops": []}',
            "kvviz: line 2, layout.kind: ",
        ),
        ("{", "kvviz: line 1: column 2: this is not JSON"),
        ("\x00", "kvviz: line 1: column 1: this is not JSON"),
        (" " * (MAX_BYTES + 5), "kvviz: the file is longer than 1,000,000 bytes"),
    ],
    ids=["layout", "cut", "nul", "long"],
)
def test_a_bad_file_takes_one_line(capsys, tmp_path, text, told):
    """It would end in a traceback."""
    where = tmp_path / "bad.json"
    where.write_text(text, encoding="utf-8")
    status, out, err = run(capsys, str(where))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(told)


@pytest.mark.parametrize("where", ["/no/such/file.json", "/", "\x00"])
def test_a_file_that_is_not_there_takes_one_line(capsys, where):
    """It would end in a traceback."""
    status, _, err = run(capsys, where)
    assert (status, err.count("\n")) == (2, 1)
    assert "can't be read" in err
