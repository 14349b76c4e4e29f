"""Grids, cells, what is kept of them, and tables."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from kvviz.build import build_lanes
from kvviz.config import RunConfig
from kvviz.errors import ConfigError
from kvviz.report import TIMED, lane_report
from kvviz.sweeps import cell as cell_module
from kvviz.sweeps.cell import Cell, run_cell
from kvviz.sweeps.grid import Grid, parse_axes, parse_seeds
from kvviz.sweeps.job import Job, Progress
from kvviz.sweeps.kept import Kept, default_folder
from kvviz.sweeps.pool import Pool
from kvviz.sweeps.sweep import run_sweep
from kvviz.sweeps.table import FIGURES, as_csv, by_seed, mean_over_seeds, rows, text

HERE = Pool(jobs=1)
AXES = {"paged.block_size": (8, 64), "mix.rate": (0.2, 0.4)}
GRID = Grid(RunConfig(), AXES, (1, 2), 60)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """Of GRID; not to be changed."""
    return run_sweep(GRID, HERE, Kept(tmp_path_factory.mktemp("kept")))


def test_a_cell_is_the_run_that_its_settings_name(result):
    """The table would hold numbers of another run."""
    row = result["cells"][5]
    assert (row["settings"], row["seed"]) == ({"paged.block_size": 64, "mix.rate": 0.2}, 2)
    lanes = build_lanes(
        RunConfig().replace({"dry": True, "paged.block_size": 64, "mix.rate": 0.2, "seed": 2})
    )
    for _ in range(60):
        lanes.step()
    told = lane_report(lanes.engines["paged"])
    found = row["lanes"]["paged"]
    assert told["free"]["mean"] == found["free.mean"]
    assert told["refused"]["capacity"] == found["refused.capacity"]
    assert told["finished"] == found["finished"]
    assert lanes.stream.hash == row["stream_hash"]
    assert not set(TIMED) & set(found)


def test_every_figure_on_offer_is_in_a_cell(result):
    """A choice of the page would show nothing."""
    for figures in result["cells"][0]["lanes"].values():
        assert set(FIGURES) <= set(figures)


def test_the_key_changes_with_whatever_changes_the_result(monkeypatch):
    """A cell would be answered with another one's numbers."""
    base = RunConfig()
    keys = [Cell(base, 60).key, Cell(base, 61).key, Cell(base.replace({"seed": 2}), 60).key]
    keys += [Cell(base.replace({"paged.watermark": 0.1}), 60).key]
    monkeypatch.setattr(cell_module, "__version__", "0.0.0")
    keys += [Cell(base, 60).key]
    assert len(set(keys)) == 5
    assert Cell(base, 60).key == Cell(RunConfig(), 60).key


def test_finished_cells_are_not_run_again(tmp_path):
    """An interrupted sweep would start from nothing."""
    small = Grid(RunConfig(), {"paged.block_size": (8, 64)}, (1,), 40)
    first = run_sweep(small, HERE, Kept(tmp_path))
    assert (first["ran"], first["read_from_disk"]) == (2, 0)
    again = run_sweep(small, HERE, Kept(tmp_path))
    assert (again["ran"], again["read_from_disk"]) == (0, 2)
    assert first["cells"] == again["cells"]
    more = Grid(RunConfig(), {"paged.block_size": (8, 16, 64)}, (1,), 40)
    grown = run_sweep(more, HERE, Kept(tmp_path))
    assert (grown["ran"], grown["read_from_disk"]) == (1, 2)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"finished": ', '"finished": 1'),
        lambda text: "[1, 2]",
        lambda text: text.replace('"key": "', '"key": "f'),
    ],
)
def test_a_damaged_file_is_run_again(tmp_path, damage):
    """Half a file would break the sweep, or a changed number would be believed."""
    cell = Cell(RunConfig().replace({"dry": True}), 40)
    kept, good = Kept(tmp_path), run_cell(cell)
    kept.put(cell.key, good)
    assert good == kept.get(cell.key)
    (file,) = tmp_path.iterdir()
    changed = damage(file.read_text())
    assert changed != file.read_text()
    file.write_text(changed)
    assert kept.get(cell.key) is None
    kept.put(cell.key, good)
    assert good == kept.get(cell.key)
    assert [file] == list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    """A full disk would end in a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="Choose another folder"):
        Kept(tmp_path / "file" / "inner")


def test_the_default_folder_follows_the_environment(monkeypatch, tmp_path):
    """Cells would be written where nobody looks for them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert tmp_path / "kvviz" / "sweeps" == default_folder()


def test_axes_are_read_in_the_type_of_their_setting():
    """A block of "16" would not be one of 16."""
    words = ["paged.block_size=1, 2", "contiguous.fit=first,best", "paged.prefix_sharing=no,yes",
             "memory.slots=64,1024", "memory.context=4096", "mix.prompts=trace,fixed"]  # fmt: skip
    assert parse_axes(words) == {
        "paged.block_size": (1, 2),
        "contiguous.fit": ("first", "best"),
        "paged.prefix_sharing": (False, True),
        "memory.slots": (64, 1024),
        "memory.context": (4096,),
        "mix.prompts": ("trace", "fixed"),
    }


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("memory.share=0.1,0.2", "a sweep is dry and has no device. Take memory.slots"),
        ("paged.block_size", "is no axis"),
        ("paged.block_size=", "is no axis"),
        ("paged.block_size=0", "1 to 256"),
        ("paged.block_size=x", "whole number"),
        ("paged.blocks=4", "unknown setting"),
        ("seed=1,2", "can't be an axis"),
        ("contiguous.fit=first,soft", "first, best"),
    ],
)
def test_a_bad_axis_is_told(word, said):
    """It would end in a traceback, or run something else."""
    with pytest.raises(ConfigError, match=said):
        parse_axes([word])


@pytest.mark.parametrize(
    ("axes", "more", "said"),
    [
        ({"paged.block_size": (8, 8)}, {}, "twice"),
        ({"paged.block_size": ()}, {}, "no values"),
        ({"memory.slots": (1024,)}, {}, "The cell memory.slots=1024: memory.context"),
        ({"paged.block_size": tuple(range(1, 257))}, {"seeds": tuple(range(50))}, "12,800 cells"),
        ({}, {"steps": 0}, "1,000,000"),
        ({}, {"seeds": ()}, "seeds"),
    ],
)
def test_a_bad_grid_is_told_before_it_runs(axes, more, said):
    """An hour later one cell would turn out to be impossible."""
    with pytest.raises(ConfigError, match=said):
        Grid(RunConfig(), axes, **more)


def test_seeds():
    """Seeds would be others than those asked for."""
    assert parse_seeds("1,2,5") == (1, 2, 5)
    assert parse_seeds("1-3") == (1, 2, 3)
    for bad in ("", "a", "3-1", "1-5000", "1,,2"):
        with pytest.raises(ConfigError, match="seeds"):
            parse_seeds(bad)


def test_means_over_seeds(result):
    """The heat map would mix up rows, columns or seeds."""
    table = mean_over_seeds(result, "paged", "free.mean")
    assert table.shape == (2, 2)
    one, two = (
        cell["lanes"]["paged"]["free.mean"]
        for cell in result["cells"]
        if cell["settings"] == {"paged.block_size": 8, "mix.rate": 0.4}
    )
    assert one != two
    assert (one + two) / 2 == pytest.approx(table[0, 1])
    assert [one, two] == by_seed(result, "paged", "free.mean")[0, 1].tolist()


def test_what_is_unknown_is_not_zero(result):
    """A cell that failed would be drawn as nothing wasted."""
    holed = json.loads(json.dumps(result))
    holed["cells"][0]["lanes"] = holed["cells"][1]["lanes"] = None
    holed["cells"][2]["lanes"] = None
    table = mean_over_seeds(holed, "paged", "free.mean")
    assert np.isnan(table[0, 0]) and not np.isnan(table[0, 1])
    assert holed["cells"][3]["lanes"]["paged"]["free.mean"] == table[0, 1]
    assert "n/a" in text(holed) and "3 missing" in text(holed)
    assert len(rows(holed)) == 10


def test_the_csv_holds_every_row(result):
    """The download would lack cells or figures."""
    found = list(csv.DictReader(io.StringIO(as_csv(result))))
    assert len(found) == 16
    first = result["cells"][0]["lanes"]["contiguous"]
    assert tuple(found[0][n] for n in ("paged.block_size", "mix.rate", "seed", "lane")) == (
        "8",
        "0.2",
        "1",
        "contiguous",
    )
    assert first["free.mean"] == float(found[0]["free.mean"])
    assert set(first) < set(found[0])
    assert as_csv({**result, "cells": []}) == ""


def test_progress_is_told(tmp_path):
    """The bar would stand still, or end too early."""
    told: list[Progress] = []
    run_sweep(GRID, HERE, Kept(tmp_path), told=told.append)
    assert list(range(9)) == sorted({p.done for p in told})
    assert Progress(8, 0, 0, 8) == told[-1]


def test_a_cancelled_sweep_keeps_what_is_done(tmp_path):
    """Cancel would throw away finished cells, or hide that some are missing."""
    told: list[Progress] = []
    stopped = run_sweep(
        GRID, HERE, Kept(tmp_path), told=told.append, cancelled=lambda: told[-1].done >= 3
    )
    assert (stopped["ran"], stopped["complete"]) == (3, False)
    assert sum(cell["lanes"] is not None for cell in stopped["cells"]) == 3
    rest = run_sweep(GRID, HERE, Kept(tmp_path))
    assert (rest["ran"], rest["read_from_disk"], rest["complete"]) == (5, 3, True)


def test_a_job_ends_with_its_result_or_its_error(tmp_path):
    """The page would wait for ever, or show nothing."""

    def refuses(told, cancelled):
        raise ConfigError("no room")

    good = Job(lambda told, cancelled: run_sweep(GRID, HERE, Kept(tmp_path), told=told))
    bad = Job(refuses)
    for job in (good, bad):
        job.join(60)
        assert not job.running
    assert good.result["complete"] and good.error is None
    assert Progress(8, 0, 0, 8) == good.progress
    assert (bad.result, bad.error) == (None, "no room")
