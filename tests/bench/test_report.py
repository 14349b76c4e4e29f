"""A bench's JSON: what the command writes is read back, and nothing that a stranger wrote hurts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvviz.bench.suite as suite
from kvviz.bench.report import MOST_BYTES, read, targets
from kvviz.bench.result import LeftOut, Measured
from kvviz.errors import BenchError

FIGURES = [
    Measured("ours / theirs", 6.0, "x", at_least=5),
    Measured("a step", 2.0, "ms", at_most=1.5, floor=0.5, floor_of="1 MB at 2 GB/s"),
    Measured("context", 3.0, "s"),
]


def refused() -> list[Measured]:
    raise LeftOut("nothing is installed")


@pytest.fixture
def report(monkeypatch, capsys) -> dict:
    monkeypatch.setattr(suite, "BENCHES", {"bad": refused, "good": lambda: FIGURES})
    return suite.run_benches([])


def test_a_bench_that_is_left_out_leaves_the_others(report, capsys):
    """One missing package would cost all figures."""
    assert report["left_out"] == {"bad": "nothing is installed"}
    assert report["targets"] == {"held": 1, "missed": 1}
    assert [f["holds"] for f in report["figures"]["good"]] == [True, False, None]


def test_it_is_read_back(report):
    """The page would show other figures than were measured."""
    back = read(json.dumps(report).encode())
    assert back.figures == {"good": tuple(FIGURES)}
    assert back.left_out == report["left_out"]
    assert back.about["machine"] == report["machine"]
    assert targets(back.figures["good"]) == (1, 1)


def test_whether_it_holds_is_counted_anew(report):
    """A file could claim what its numbers deny."""
    report["figures"]["good"][1]["holds"] = True
    assert read(json.dumps(report).encode()).figures["good"][1].holds is False


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xff", "no JSON"),
        (b"{", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "the file is no JSON object"),
        (b"{}", "figures is no JSON object"),
        (b'{"figures": {}}', "figures holds 0"),
        (b'{"figures": {"a": 1}}', "figures.a is no list"),
        (b'{"figures": {"a": [{"name": "x"}]}}', "no name or no value"),
        (b'{"figures": {"a": [{"name": "x", "value": true}]}}', "is no number"),
        (b'{"figures": {"a": [{"name": "x", "value": NaN}]}}', "out of range"),
        (b'{"figures": {"a": [{"name": "x", "value": 1' + b"0" * 400 + b"}]}}", "out of range"),
        (b'{"figures": {"a": [{"name": "x", "value": 1, "at_least": 1, "at_most": 2}]}}', "two"),
        (b" " * (MOST_BYTES + 1), "at most 1 MiB"),
    ],
    ids=str,
)
def test_a_bad_file_gets_one_sentence(data, said):
    """A traceback would be on the page."""
    with pytest.raises(BenchError, match=said) as raised:
        read(data)
    assert "\n" not in str(raised.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["name", "value"]), inner),
    max_leaves=6,
)


@given(_JSON)
@settings(max_examples=50)
def test_any_json_is_read_or_refused(figure):
    """Some value of a file would end the page."""
    try:
        found = read(json.dumps({"figures": {"a": [figure]}}).encode())
    except BenchError:
        return
    assert found.figures["a"][0].value == figure["value"]
