"""History gives back exactly what was put in, whatever the layout, within its budget."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.build import build_lanes
from kvviz.caches.layouts import LANES
from kvviz.engine.deltas import edit, patch, same
from kvviz.engine.history import History
from kvviz.records import Columns, Snapshot
from tests.helpers import small
from tests.strategies import run_configs

BUSY = {"mix.rate": 0.8, "engine.preemption": "swap", "engine.swap_slots": 256, "dry": True}


def assert_same(expected: Snapshot, actual: Snapshot) -> None:
    """Equal in every field, and in the kinds of the arrays."""
    for field in fields(Snapshot):
        one, two = getattr(expected, field.name), getattr(actual, field.name)
        if isinstance(one, Columns):
            for column in fields(Columns):
                _same_value(getattr(one, column.name), getattr(two, column.name), column.name)
        else:
            _same_value(one, two, field.name)


def _same_value(one: object, two: object, name: str) -> None:
    if isinstance(one, np.ndarray):
        assert isinstance(two, np.ndarray), name
        assert one.dtype.kind == two.dtype.kind, name  # a history keeps the larger of each
        assert one.tolist() == two.tolist(), name
    else:
        assert one == two, name


def record(name: str, changes: dict, steps: int, history: History) -> list[Snapshot]:
    lanes = build_lanes(small({"lanes": name, **BUSY, **changes}))
    added = []
    for _ in range(steps):
        lanes.step()
        added.append(lanes.engines[name].snapshot())
        history.add(added[-1])
    return added


@pytest.mark.parametrize("name", LANES)
def test_every_step_comes_back_in_any_order(name: str) -> None:
    """A past step would show a map that never was."""
    history = History()
    added = record(name, {}, 90, history)
    assert sum(s.counters.preempted + s.counters.waiting for s in added) > 0
    order = np.random.default_rng(1).permutation(len(added)).tolist()
    for index in [*range(len(added)), *order]:
        assert_same(added[index], history.at(added[index].step))


@settings(max_examples=12, deadline=None)
@given(config=run_configs(), every=st.integers(1, 40), data=st.data())
def test_whatever_the_settings(config, every: int, data: st.DataObject) -> None:
    """Some policy changes a snapshot in a way that the coder does not foresee."""
    lanes = build_lanes(config.replace({"dry": True}))
    kept = {name: History(keyframe_steps=every) for name in lanes.engines}
    added: dict[str, list[Snapshot]] = {name: [] for name in lanes.engines}
    for _ in range(60):
        lanes.step()
        for name, engine in lanes.engines.items():
            added[name].append(engine.snapshot())
            kept[name].add(added[name][-1])
    for index in data.draw(st.lists(st.integers(0, 59), min_size=1, max_size=12)):
        for name, history in kept.items():
            assert_same(added[name][index], history.at(added[name][index].step))


numbers = st.lists(st.integers(-(2**40), 2**40), max_size=12)


@given(old=numbers, new=numbers, seed=st.integers(0, 99))
def test_any_table_can_follow_any_other(old: list[int], new: list[int], seed: int) -> None:
    """Rows in another order, or with one name twice, would come back wrong."""
    draw = np.random.default_rng(seed)
    one, two = (
        (np.array(keys, np.int64), draw.integers(-300, 300, len(keys))) for keys in (old, new)
    )
    back = patch(one, edit(one, two, same), same)
    assert [c.tolist() for c in two] == [c.tolist() for c in back]


def test_the_oldest_steps_are_dropped_and_counted() -> None:
    """Memory would grow with the run, or steps be missed without a word."""
    history = History(budget_bytes=20_000, keyframe_steps=8)
    added = record("paged", {}, 300, history)
    assert history.nbytes <= history.budget_bytes
    assert (history.first + len(history) - 1, history.last) == (300, 300)
    assert history.dropped == history.first - 1 > 0
    assert len(history) > 20
    for snapshot in added[-len(history) :]:
        assert_same(snapshot, history.at(snapshot.step))
    for gone in (history.first - 1, history.last + 1):
        with pytest.raises(KeyError, match="is not kept"):
            history.at(gone)


def test_earlier_steps_are_put_before() -> None:
    """A run that goes on after a look back would lose the steps before it, or mix them up."""
    added = record("paged", {}, 60, History())
    early, late = History(keyframe_steps=7), History()
    for snapshot in added:
        (early if snapshot.step <= 25 else late).add(snapshot)
    nbytes = early.nbytes + late.nbytes
    late.prepend(early)
    assert (late.first, late.last, len(late), late.nbytes) == (1, 60, 60, nbytes)
    assert late.keyframes[:5] == [1, 8, 15, 22, 26]
    for snapshot in added:
        assert_same(snapshot, late.at(snapshot.step))


def test_an_empty_history_has_no_steps() -> None:
    history = History()
    assert (len(history), history.first, history.last, history.nbytes) == (0, -1, -1, 0)
    with pytest.raises(KeyError):
        history.at(0)


def test_the_newest_step_stays_whatever_the_budget() -> None:
    history = History(budget_bytes=1)
    added = record("contiguous", {}, 5, history)
    assert len(history) >= 1
    assert_same(added[-1], history.at(5))


def test_a_step_costs_little_memory() -> None:
    """16 bytes a row and step would be 130 MB a lane at 65,536 slots and 10,000 steps."""
    history = History()
    added = record("paged", {"memory.slots": 16_384, "mix.rate": 1.0}, 200, history)
    rows = len(added[-1].columns.start)
    assert rows == 1024
    assert history.nbytes / len(added) < rows
