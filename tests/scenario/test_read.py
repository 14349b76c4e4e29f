"""The reader: what it takes, and the line and field it names for what it does not."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.caches.layouts import LAYOUTS
from kvviz.config import RunConfig
from kvviz.errors import KvvizError, ScenarioError
from kvviz.scenario.examples import examples
from kvviz.scenario.parts import Job, Op
from kvviz.scenario.read import MAX_CAPACITY, MAX_OPS, layout_keys, read
from kvviz.scenario.replay import frames, report
from kvviz.scenario.text import MAX_BYTES, line_of, places

GOOD: dict[str, Any] = {"capacity": 64, "layout": {"kind": "paged"}, "ops": []}
SERVED: dict[str, Any] = {
    "capacity": 64,
    "layout": {"kind": "paged"},
    "requests": [{"prompt": 1, "output": 1}],
}


def refused(file: Any) -> ScenarioError:
    with pytest.raises(ScenarioError) as caught:
        read(file if isinstance(file, str | bytes) else json.dumps(file, indent=1))
    return caught.value


def test_everything_that_can_be_said():
    """A key of the format would be lost."""
    found = read(
        json.dumps(
            {
                "title": "T",
                "story": "S",
                "blocks": 10,
                "layout": {"kind": "paged", "block_size": 8, "watermark": 0.1},
                "max_len": 70,
                "max_steps": 50,
                "scheduler": {"queue": "skip", "chunk": 4, "max_running": 2, "token_budget": 9},
                "requests": [
                    {"prompt": 9, "output": 2, "count": 2},
                    {
                        "arrive": 3,
                        "prompt": 1,
                        "output": 2,
                        "limit": 5,
                        "samples": 2,
                        "priority": -1,
                        "parked": True,
                        "output_known": False,
                    },
                ],
            }
        )
    )
    assert (found.title, found.story, found.layout, found.kind) == ("T", "S", "paged", "requests")
    assert (found.config.memory.slots, found.max_len, found.max_steps) == (80, 70, 50)
    assert (found.config.paged.block_size, found.config.paged.watermark) == (8, 0.1)
    engine = found.config.engine
    assert (engine.queue, engine.chunk, engine.max_running, engine.token_budget) == (
        "skip",
        4,
        2,
        9,
    )
    assert found.jobs == (
        Job(0, 9, 2, 2),
        Job(0, 9, 2, 2),
        Job(3, 1, 2, 5, 2, -1, True, False),
    )


def test_ops_are_read_as_they_are_written():
    """An operation would change on its way in."""
    ops = [
        ["allocate", "a", 3], ["free", "a"], ["ask", 4], ["extend", "a", 1], ["compact"],
        ["leak", 2], ["books", 1, 2, 3], ["repeat", 2, [["free", "b{i}"], ["compact"]]],
    ]  # fmt: skip
    found = read(json.dumps({**GOOD, "ops": ops})).ops
    assert found is not None
    assert [op.words() for op in found] == ops
    assert found[-1] == Op("repeat", times=2, inner=(Op("free", "b{i}"), Op("compact")))
    assert found[-1].single_ops == 4


def test_nothing_is_limited_unless_the_file_says_so():
    """A replay would be held back by the bounds of the live page."""
    engine = read(json.dumps(SERVED)).config.engine
    assert min(engine.token_budget, engine.max_running, engine.queue_limit) >= 1 << 30


@pytest.mark.parametrize(
    ("change", "line", "field", "told"),
    [
        ({"capacity": True}, 2, "capacity", "a whole number from 1 to 16,777,216"),
        ({"capacity": 1.0}, 2, "capacity", "not 1.0"),
        ({"capacity": "64"}, 2, "capacity", 'not "64"'),
        ({"capacity": None}, 2, "capacity", "not null"),
        ({"capacity": 0}, 2, "capacity", "not 0"),
        ({"capacity": MAX_CAPACITY + 1}, 2, "capacity", "not 16777217"),
        ({"capacity": 10**25}, 2, "capacity", "beyond all bounds"),
        ({"capacity": float("nan")}, 2, "capacity", "NaN"),
        ({"capacity": float("inf")}, 2, "capacity", "beyond all bounds"),
        ({"capacity": 8}, 2, "capacity", "0 blocks"),
        ({"blocks": 4}, 1, "", "give the pool's size once"),
        ({"layout": "paged"}, 3, "layout", "a layout, an object"),
        ({"layout": {}}, 3, "layout", "'kind' is missing"),
        ({"layout": {"kind": "heap"}}, 4, "layout.kind", "one of contiguous, paged"),
        ({"layout": {"kind": ["paged"]}}, 4, "layout.kind", "one of contiguous, paged"),
        ({"layout": {"kind": "paged", "fit": "best"}}, 5, "layout.fit", "Known here: kind, block_"),
        ({"layout": {"kind": "paged", "block_size": 0}}, 5, "layout.block_size", "from 1 to 256"),
        ({"layout": {"kind": "paged", "watermark": 2}}, 5, "layout.watermark", "from 0 to 0.5"),
        ({"layout": {"kind": "paged", "null_block": 1}}, 5, "layout.null_block", "true or false"),
        ({"layout": {"kind": "contiguous", "fit": "x"}}, 5, "layout.fit", "one of first, best"),
        ({"title": 3}, 7, "title", "text of 1 to 120"),
        ({"title": "a\nb"}, 7, "title", "printable"),
        ({"titel": "x"}, 7, "titel", "unknown key"),
        ({"a\nb": 1}, 7, '"a\\nb"', "unknown key"),
        ({"requests": []}, 1, "", "either ops or requests"),
        ({"scheduler": {}}, 7, "scheduler", "unknown key"),
        ({"ops": {}}, 6, "ops", "a list"),
        ({"ops": [7]}, 7, "ops[0]", "a list"),
        ({"ops": [[]]}, 7, "ops[0]", '["allocate", name, slots]'),
        ({"ops": [["fre", "a"]]}, 8, "ops[0][0]", "one of allocate, free"),
        ({"ops": [["free"]]}, 7, "ops[0]", '["free", name]'),
        ({"ops": [["compact"], ["ask", 1.5]]}, 12, "ops[1][1]", "a whole number from 1"),
        ({"ops": [["allocate", "", 4]]}, 9, "ops[0][1]", "text of 1 to 64"),
        ({"ops": [["allocate", "\ud800", 4]]}, 9, "ops[0][1]", "printable"),
        ({"ops": [["repeat", 2, []]]}, 10, "ops[0][2]", "at least one operation"),
        (
            {"ops": [["repeat", 1000, [["repeat", 1000, [["compact"]]]]]]},
            6,
            "ops",
            "1,000,000 operations; 100,000",
        ),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_is_wrong_is_told_with_its_place(change, line, field, told):
    """One would search the file for it."""
    error = refused({**GOOD, **change})
    assert (error.line, error.field) == (line, field)
    assert told in str(error)
    assert "\n" not in str(error)
    assert isinstance(error, KvvizError)


@pytest.mark.parametrize(
    ("change", "line", "field", "told"),
    [
        ({"requests": [{"output": 1}]}, 7, "requests[0]", "'prompt' is missing"),
        ({"requests": [{"prompt": 1, "output": 0}]}, 9, "requests[0].output", "not 0"),
        ({"requests": [{"prompt": 1, "output": 5, "limit": 4}]}, 10, "requests[0].limit", "from 5"),
        ({"requests": [{"prompt": 1, "output": 1, "parked": 1}]}, 10, "requests[0].parked", "true"),
        ({"requests": [{"prompt": 1, "output": 1, "x": 1}]}, 10, "requests[0].x", "unknown key"),
        (
            {"requests": [{"prompt": 1, "output": 1, "count": 10_001}]},
            10,
            "requests[0].count",
            "to",
        ),
        (
            {"requests": [{"prompt": 1, "output": 1, "count": 6000}] * 2},
            12,
            "requests[1]",
            "more than 10,000 requests",
        ),
        ({"max_len": 5, "requests": [{"prompt": 5, "output": 2}]}, 7, "requests[0]", "max_len 5"),
        ({"scheduler": {"queue": "lifo"}}, 13, "scheduler.queue", "one of strict"),
        ({"scheduler": {"max_running": 0}}, 13, "scheduler.max_running", "from 1 to 1,024"),
        ({"max_steps": -1}, 12, "max_steps", "from 1"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_is_wrong_with_requests_is_told_with_its_place(change, line, field, told):
    """One would search the file for it."""
    error = refused({**SERVED, **change})
    assert (error.line, error.field) == (line, field)
    assert told in str(error)


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("", 1, "column 1: this is not JSON"),
        ("{\n 'a': 1}", 2, "column 2"),
        ('{"capacity": 1,\n"capacity": 2}', 2, "there twice"),
        ("[" * 50_000, 1, "nested more than"),
        ('{"ops":\n[[[[[[[[[[[[1]]]]]]]]]]]]}', 2, "nested more than"),
        ("[1]", 1, "an object"),
        ("null", 1, "an object"),
        (b"\xff\xfe{}", 1, "UTF-8"),
        (b"{}\n\x80", 2, "UTF-8"),
        ('{"capacity":' + "9" * 5000 + "}", 1, ""),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_not_json_is_told_with_its_place(text, line, told):
    """A traceback would be shown, or the process would end."""
    error = refused(text)
    assert error.line == line
    assert told in str(error)


def test_sizes_are_capped():
    """A file could take the server's memory."""
    assert "longer than" in str(refused(" " * (MAX_BYTES + 1)))
    assert "100,001 entries" in str(refused({**GOOD, "ops": [1] * (MAX_OPS + 1)}))
    many = {**GOOD, "capacity": MAX_CAPACITY, "layout": {"kind": "paged", "block_size": 1}}
    assert "16,777,216 blocks" in str(refused(many))


def test_a_byte_order_mark_is_no_part_of_the_file():
    """A file saved by an editor on Windows would be refused."""
    assert read(b"\xef\xbb\xbf" + json.dumps(GOOD).encode()).ops == ()
    assert read("\ufeff" + json.dumps(GOOD)).ops == ()


def test_lines_are_those_of_the_text():
    """A message would point elsewhere."""
    text = '{"a": "}{\\"",\n "b": [1,\n  {"c": 2}]\n}'
    assert dict(places(text))[("b", 1, "c")] == text.index("2")
    assert [line_of(text, path) for path in [(), ("a",), ("b", 0), ("b", 1, "c"), ("b", 9)]] == [
        1, 1, 2, 3, 2,
    ]  # fmt: skip


def test_every_setting_of_a_layout_can_be_set():
    """A layout that is new would have keys that no file can reach."""
    for kind in LAYOUTS:
        keys = layout_keys(kind)
        assert keys
        defaults = {path: value for path, value, _ in RunConfig().walk()}
        layout = {"kind": kind} | {key: defaults[path] for key, path in keys.items()}
        found = read(json.dumps({"capacity": 8192, "layout": layout, "ops": []}))
        assert getattr(found.config, kind) == getattr(RunConfig(), kind)


@pytest.mark.parametrize("name", examples())
def test_every_example_can_be_replayed(name):
    """The page would open with an error."""
    found = read(examples()[name])
    assert found.title and found.story
    told = report(found)
    json.dumps(told, allow_nan=False)
    total = len(told["ops"]) if found.kind == "ops" else told["steps"]
    assert len(list(frames(found, 0, 5))) == min(5, total)


def test_examples_have_names_of_their_own():
    """Two would be one in the page's address."""
    titles = [read(text).title for text in examples().values()]
    assert len(set(titles)) == len(titles)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
_ODD = _JSON | st.sampled_from([0, 1, 64, -1, True, "paged", "a", [], {}, [["ask", 5]]])


@given(_JSON)
def test_any_value_is_a_scenario_or_refused(value):
    """A file could end in a traceback."""
    with suppress(ScenarioError):
        read(json.dumps(value))


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_any_text_is_a_scenario_or_refused(source):
    """A file could end in a traceback."""
    with suppress(ScenarioError):
        read(source)


@given(st.sampled_from([GOOD, SERVED]), st.data())
def test_a_scenario_with_an_odd_value_is_replayed_or_refused(file, data):
    """What passes the reader could break the replay."""
    file = json.loads(json.dumps(file))
    keys = ["capacity", "layout", "ops", "requests", "scheduler", "max_len", "blocks", "x"]
    file[data.draw(st.sampled_from(keys))] = data.draw(_ODD)
    for request in file.get("requests") or [] if isinstance(file.get("requests"), list) else []:
        if isinstance(request, dict) and data.draw(st.booleans()):
            request[data.draw(st.sampled_from(["prompt", "limit", "samples"]))] = data.draw(_ODD)
    told = ""
    try:
        report(read(json.dumps(file)))
    except ScenarioError as error:
        told = str(error)
    assert told.isprintable()
