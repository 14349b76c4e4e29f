"""What a browser asks beside the pictures, and the files of events."""

from __future__ import annotations

import csv
import io
import json

import pyarrow.parquet
import pytest

from kvviz.live import log
from kvviz.ui.asked import Asked
from kvviz.ui.files import WRITERS
from tests.live.support import publish
from tests.live.test_inspect import made
from tests.ui.test_frames import defaults


def test_what_is_asked_is_answered() -> None:
    """A click on the map would open an empty panel."""
    lanes, past = made()
    asked = Asked()
    request = int(past.shots(past.last)["paged"].seq_id[0])
    assert asked.obey({"select": request, "log": {"kind": "refuse"}})
    found = asked.answer(lanes, past, past.last)
    assert found["selected"]["request"] == request
    assert found["selected"]["lanes"]["paged"]["state"] == "running"
    assert {"refuse"} == {row[2] for row in found["log"]["rows"]}
    assert asked.obey({"hole": ["contiguous", 511]})
    assert asked.answer(lanes, past, past.last)["selected"] is None
    json.dumps(asked.answer(lanes, past, past.last))


@pytest.mark.parametrize(
    "words",
    [{"select": -1}, {"select": "7"}, {"select": True}, {"hole": "x"}, {"hole": [1, 2]},
     {"hole": ["paged", -1]}, {"hole": ["paged"]}, {"log": "all"}, {"log": []}, {}],
    ids=str,
)  # fmt: skip
def test_nonsense_is_ignored(words: dict) -> None:
    """A broken message would end the viewer's channel."""
    asked = Asked()
    assert not asked.obey(words)
    assert (asked.select, asked.hole, asked.log) == (None, None, None)


def test_a_lane_that_is_not_there_has_no_holes() -> None:
    lanes, past = made(steps=5)
    asked = Asked()
    asked.obey({"hole": ["nowhere", 3]})
    assert asked.answer(lanes, past, past.last)["hole"] is None


def test_answers_come_when_they_are_due() -> None:
    """A run would be slowed down by each frame's questions, or a paused one show old facts."""
    running = publish(defaults(), 5)
    paused = publish(defaults(), 5, state="paused")
    asked = Asked()
    assert not asked.due(paused, 10.0)
    asked.obey({"select": 3})
    assert asked.due(running, 10.0)
    assert not asked.due(running, 10.1)
    assert asked.due(running, 10.6)
    assert asked.due(paused, 10.7)
    assert asked.due(paused, 10.8)
    asked.obey({"select": None})
    assert asked.due(paused, 10.9)
    assert not asked.due(paused, 11.0)


def test_files_hold_the_table() -> None:
    """A download would lack rows or columns."""
    lanes, _ = made(steps=40)
    rows = log.table(lanes)
    assert len(rows) > 20
    read = list(csv.reader(io.StringIO(WRITERS["csv"].write(rows).decode())))
    assert [list(log.COLUMNS), *([str(v) for v in row] for row in rows)] == read
    lines = [json.loads(line) for line in WRITERS["jsonl"].write(rows).splitlines()]
    assert [dict(zip(log.COLUMNS, row, strict=True)) for row in rows] == lines
    table = pyarrow.parquet.read_table(io.BytesIO(WRITERS["parquet"].write(rows)))
    assert lines == table.to_pylist()
    empty = pyarrow.parquet.read_table(io.BytesIO(WRITERS["parquet"].write([])))
    assert (empty.column_names, empty.num_rows) == (list(log.COLUMNS), 0)
