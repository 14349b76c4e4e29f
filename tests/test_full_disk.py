"""A disk that is full under a file that is being written: told, and what was there stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kvviz.errors import ConfigError
from kvviz.sweeps.kept import Kept

# Files of this process may have so many bytes: the write fails in the middle, as on a full disk
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
from kvviz.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("option", ["--record", "--json"])
def test_a_saved_file_survives(option: str, tmp_path: Path, root: Path) -> None:
    """The run of last night would be lost for the one of tonight, which did not fit."""
    where = tmp_path / "run"
    where.write_text("last night")
    words = ["run", "--dry", "--steps", "60", "--set", "lanes=contiguous,buddy,tlsf,paged"]
    ran = subprocess.run(
        [sys.executable, "-c", LIMITED, *words, option, str(where)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.startswith(f"kvviz: {where} can't be written: File too large")
    assert ran.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert where.read_text() == "last night"


def test_a_device_is_written_to_as_it_is(root: Path, tmp_path: Path) -> None:
    """`--json /dev/full` would leave a file in /dev, and `/dev/stdout` would print nothing."""
    code = "import sys; from kvviz.cli_write import write; write({'a': 1}, sys.argv[1])"
    for where, told in (("/dev/stdout", '{\n "a": 1\n}\n'), ("/dev/full", "")):
        ran = subprocess.run(
            [sys.executable, "-c", code, where],
            cwd=root,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.stdout == told
        assert ("No space left on device" in ran.stderr) == (where == "/dev/full")
    out = tmp_path / "out"
    with out.open("w") as file:
        subprocess.run([sys.executable, "-c", code, "/dev/stdout"], cwd=root, stdout=file)
    assert out.read_text() == '{\n "a": 1\n}\n'
    assert not list(Path("/dev").glob(".*"))


def test_finished_cells_survive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep that meets a full disk would lose the cells that it had kept."""
    kept = Kept(tmp_path)
    kept.put("a", {"lanes": 1})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kvviz.sweeps.kept.os.replace", full)
    with pytest.raises(ConfigError, match="No space left on device. Make room"):
        kept.put("b", {"lanes": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
    assert kept.get("a") == {"lanes": 1} and kept.get("b") is None
