"""ServeGen's two halves of a client: statistics, from which requests are drawn and called drawn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kvviz.errors import TraceError
from kvviz.workloads.traces import servegen
from kvviz.workloads.traces.read import read_trace

RATES = "0,0,0,,0,0\n600,2.5,1.0,Gamma,1.0,0.4\n1200,5.0,2.0,Weibull,0.5,0.1\n1800,0,0,,0,0\n"
LENGTHS = json.dumps(
    {
        "0": {"input_tokens": "{100: 0.25, 300: 0.75}", "output_tokens": "{7: 1.0}"},
        "1200": {"input_tokens": "{50: 1.0}", "output_tokens": "{9: 1.0}", "reason_ratio": "{}"},
        "2400": {"input_tokens": "{}", "output_tokens": "{}"},
    }
)


@pytest.mark.parametrize("turned", [False, True])
def test_requests_of_a_client(turned: bool) -> None:
    """Rates, variation or lengths of another window; what is drawn passes for recorded."""
    halves = (LENGTHS, RATES) if turned else (RATES, LENGTHS)
    trace = read_trace(halves[0].encode(), companion=halves[1].encode())
    assert trace.format == "servegen"
    assert trace.units["arrival"] == "s (generated)"
    assert "drawn" in trace.notes[-1]
    assert trace.arrival_s[0] >= 600
    assert trace.arrival_s[-1] < 1800
    early = trace.arrival_s < 1200
    assert early.sum() == pytest.approx(1500, rel=0.1)
    assert (~early).sum() == pytest.approx(3000, rel=0.2)
    assert set(trace.prompt[early]) == {100, 300}
    assert np.mean(trace.prompt[early] == 300) == pytest.approx(0.75, abs=0.05)
    assert set(trace.prompt[~early]) == {50}
    assert (set(trace.output[early]), set(trace.output[~early])) == ({7}, {9})
    gaps = np.diff(trace.arrival_s[~early])
    assert gaps.std() / gaps.mean() == pytest.approx(2, rel=0.2)
    again = read_trace(halves[0].encode(), companion=halves[1].encode())
    assert np.array_equal(trace.arrival_s, again.arrival_s)


def test_the_other_half_is_found_beside_it(tmp_path: Path) -> None:
    """A person must name both files."""
    (tmp_path / "chunk-3-trace.csv").write_text(RATES)
    (tmp_path / "chunk-3-dataset.json").write_text(LENGTHS)
    one, other = (read_trace(tmp_path / f"chunk-3-{n}") for n in ("trace.csv", "dataset.json"))
    assert one.arrival_s is not None
    assert np.array_equal(one.arrival_s, other.arrival_s)
    (tmp_path / "chunk-3-trace.csv").unlink()
    assert read_trace(tmp_path / "chunk-3-dataset.json").arrival_s is None


def test_lengths_alone() -> None:
    """Lengths without times get times, or one window outweighs the other."""
    trace = read_trace(LENGTHS.encode())
    assert trace.arrival_s is None
    assert trace.rows == 10_000
    assert np.count_nonzero(trace.prompt == 50) == 5000
    assert "drawn" in trace.notes[-1]


def test_limit() -> None:
    """A client with 48 million requests fills the memory."""
    windows = [servegen.Window(600.0 * k, 40.0, 1.0) for k in range(100)]
    trace = servegen.read_client(windows, json.loads(LENGTHS), limit=30_000)
    assert trace.rows == 30_000
    assert any("Stopped at the limit of 30,000" in note for note in trace.notes)


def test_images_are_part_of_the_prompt() -> None:
    """A prompt of text and an image holds the text alone."""
    window = {
        "text_tokens": "{50: 1.0}",
        "image_tokens": "{400: 0.5, 600: 0.5}",
        "image_count": "{2: 1.0}",
        "output_tokens": "{0: 0.5, 12: 0.5}",
    }
    trace = read_trace(RATES.encode(), companion=json.dumps({"0": window}).encode())
    assert set(trace.prompt) == {1050}
    assert set(trace.output) == {1, 12}
    assert any("raised to 1" in note for note in trace.notes)
    assert any("images" in note for note in trace.notes)
    del window["image_count"]
    alone = read_trace(RATES.encode(), companion=json.dumps({"0": window}).encode())
    assert set(alone.prompt) == {50}


def test_blank_lines_between_windows() -> None:
    """An editor's last empty line passes for a damaged window."""
    blank = read_trace((RATES.replace("\n", "\n\n")).encode(), companion=LENGTHS.encode())
    plain = read_trace(RATES.encode(), companion=LENGTHS.encode())
    assert np.array_equal(blank.arrival_s, plain.arrival_s)


def test_a_second_file_that_is_no_half() -> None:
    """Any file beside the lengths would be taken for their rates, and any for the lengths."""
    assert read_trace(LENGTHS.encode(), companion=b"1,2\n").arrival_s is None
    with pytest.raises(TraceError, match="the first file is no dataset.json"):
        read_trace(b'{"prompt_len": [5], "output_len": [6]}', companion=RATES.encode())


@pytest.mark.parametrize(
    ("rates", "lengths", "message"),
    [
        (RATES, None, "rates only. Give its dataset.json"),
        (RATES, "[1]", "no dataset.json"),
        ("0,0,0,,0,0\n", LENGTHS, "idle in every window"),
        (RATES + "1,2\n", LENGTHS, "line 5"),
        (RATES + "0,1,1,Gamma,1,1\n", LENGTHS, "starts ascend"),
        ("0,-1,1,Gamma,1,1\n", LENGTHS, "must not be negative"),
        (RATES, LENGTHS.replace("{7: 1.0}", "{7: 0.5}"), "sum to 1"),
        (RATES, LENGTHS.replace("{7: 1.0}", "__import__('os').abort()"), "probability"),
        (RATES, LENGTHS.replace("{7: 1.0}", "{7: nan}"), "sum to 1"),
        (RATES, LENGTHS.replace("{7: 1.0}", "{-7: 1.0}"), "tokens from 0 to"),
        (RATES, json.dumps({"0": {"input_tokens": "{}", "output_tokens": "{}"}}), "idle"),
        (RATES, json.dumps({"a": {"input_tokens": "{}", "output_tokens": "{}"}}), "start"),
    ],
)
def test_damaged_halves(rates: str, lengths: str | None, message: str) -> None:
    """Text is evaluated, or nonsense is drawn from."""
    with pytest.raises(TraceError, match=message):
        read_trace(rates.encode(), companion=lengths and lengths.encode())
