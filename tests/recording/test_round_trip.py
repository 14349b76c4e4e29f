"""What was recorded comes back: every snapshot, event and series, in any order of asking."""

from __future__ import annotations

import random
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.config import LANES, RunConfig
from kvviz.recording.changes import EMPTY, Rows, new_rows, replaced
from kvviz.recording.files import load, save, unpack
from kvviz.recording.schema import HEAD, KEY, LATER, SCALARS
from kvviz.records import Snapshot, Verdict
from tests.recording.made import record, recorded, unequal
from tests.strategies import run_configs


@given(
    config=run_configs(),
    steps=st.integers(1, 60),
    every=st.sampled_from([1, 1, 3]),
    lanes=st.sampled_from(["contiguous,paged", "prefix,buddy", "scattered,tlsf", "virtual"]),
)
@settings(max_examples=20)
def test_loaded_is_what_was_recorded(config: RunConfig, steps: int, every: int, lanes: str) -> None:
    """A page or a report would show another run than the one that was."""
    made = record(config.replace({"lanes": lanes}), steps, every)
    read = unpack(made.data)
    assert read.lanes == tuple(lanes.split(","))
    for lane in read.lanes:
        assert len(read.steps) == len(made.snapshots[lane])
        for index, snapshot in enumerate(made.snapshots[lane]):
            assert unequal(snapshot, read.snapshot(lane, index)) == []
        assert list(read.events(lane)) == made.events[lane]
        assert unequal(made.series[lane], read.series(lane)) == []


def test_every_lane_can_be_recorded() -> None:
    """A layout has rows or counts that the tables do not hold."""
    made = recorded(120, lanes=",".join(LANES))
    read = unpack(made.data)
    assert read.lanes == LANES
    for lane in LANES:
        assert unequal(made.snapshots[lane][-1], read.snapshot(lane, 119)) == []


def test_snapshots_in_any_order() -> None:
    """Going back, or over a step that stands alone, would give what was shown last."""
    made = recorded(KEY + 90)
    read = unpack(made.data)
    order = [0, KEY, KEY - 1, KEY + 89, 3, 2, *random.Random(1).sample(range(KEY + 90), 12)]
    for index in order:
        for lane in read.lanes:
            assert unequal(made.snapshots[lane][index], read.snapshot(lane, index)) == []
    with pytest.raises(IndexError):
        read.snapshot("paged", KEY + 90)
    with pytest.raises(IndexError):
        read.snapshot("paged", -1)


def test_every_nth_step(tmp_path) -> None:
    """Steps that were left out would lose their events and their series too."""
    made = recorded(101, every=10)
    path = tmp_path / "run.kvviz"
    save(made.data, path)
    read = load(path)
    assert read.steps.tolist() == list(range(10, 101, 10))
    assert read.manifest.every == 10
    assert len(read.series("paged").step) == 101
    assert list(read.events("contiguous")) == made.events["contiguous"]
    assert [read.at(step) for step in (0, 10, 19, 20, 5000)] == [0, 0, 0, 1, 9]


def test_a_run_shorter_than_n_keeps_its_last_step() -> None:
    read = unpack(recorded(5, every=10).data)
    assert read.steps.tolist() == [5]


def test_the_manifest_says_where_and_when() -> None:
    """A file could not be told from another, or made again."""
    read = unpack(recorded().data).manifest
    assert read.config.dry and read.config.memory.slots == 512
    assert (read.device, read.every, read.recorded) == ("dry", 1, 300)
    assert read.when.endswith("+00:00") and "Python" in read.machine
    assert read.report["steps"] == 300
    assert read.report["stream_hash"] == read.stream_hash
    assert set(read.report["lanes"]) == {"contiguous", "paged"}


def test_the_same_run_gives_the_same_tables() -> None:
    """Two files of one seed would differ in more than the times that were measured."""
    one, two = (unpack(record(unpack(recorded().data).config, 300).data) for _ in range(2))
    for lane in one.lanes:
        for index in (0, 150, 299):
            differ = unequal(one.snapshot(lane, index), two.snapshot(lane, index))
            assert set(differ) <= {"seconds"}
    assert one.manifest.stream_hash == two.manifest.stream_hash


def test_every_field_of_a_snapshot_is_kept() -> None:
    """A new field of Snapshot or Verdict would be lost in silence."""
    arrays = {f"seq_{n}" for n in ("id", "used", "life", "held", "prompt", "since")}
    kept = arrays | {"columns", "waiting_id", "waiting_need", "head", "counters", "dropped_id"}
    assert kept | {"extras"} | {*SCALARS, *LATER} == {f.name for f in fields(Snapshot)}
    assert set(Verdict._fields) == {"kind", *HEAD}


@st.composite
def tilings(draw: st.DrawFn) -> tuple[Rows, Rows]:
    """Two ways of cutting one pool into rows, some of them in common."""

    def tiling() -> Rows:
        cuts = sorted(draw(st.sets(st.integers(1, 39), max_size=12)))
        start = np.array([0, *cuts], np.int64)
        size = np.diff(np.append(start, 40))
        count = len(start)
        owner = np.array(draw(st.lists(st.integers(-1, 2), min_size=count, max_size=count)))
        used = np.where(owner < 0, 0, size - owner % 2 * (size > 1))
        zero = np.zeros(count, np.int64)
        return Rows(start, size, used, owner, (owner >= 0).astype(np.int64), zero)

    return tiling(), tiling()


@given(tilings())
def test_new_rows_alone_make_the_new_tiling(pair: tuple[Rows, Rows]) -> None:
    """An old row would survive under a new one, or vanish beside it."""
    old, new = pair
    made = replaced(old, new.take(new_rows(old, new)))
    for mine, theirs in zip(vars(made).values(), vars(new).values(), strict=True):
        assert np.array_equal(mine, theirs)
    assert new_rows(EMPTY, new).all()
    assert not new_rows(new, new).any()
