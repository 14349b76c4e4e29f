"""A file's requests as a mix."""

from __future__ import annotations

import json
from collections import OrderedDict

import pytest

from kvviz.config import Mix, RunConfig
from kvviz.errors import ConfigError, TraceError
from kvviz.workloads import recorded as recorded_module
from kvviz.workloads.recorded import FILE, digest_of, keep, recorded, settings_for
from kvviz.workloads.stream import RequestStream, source_of
from kvviz.workloads.traces.read import read_trace

ROWS = [(0, 100, 5), (1, 200, 6), (3, 300, 7), (7, 400, 8), (7, 4000, 9)]
CSV = b"arrival,prompt_tokens,output_tokens\n" + b"".join(b"%d,%d,%d\n" % row for row in ROWS)


def stream(data: bytes, context: int = 8192, **mix) -> RequestStream:
    kept = keep(read_trace(data), digest_of(data))
    config = (
        RunConfig().replace(settings_for(kept)).replace({f"mix.{k}": v for k, v in mix.items()})
    )
    return RequestStream(config.mix, context, seed=1)


def first(of: RequestStream, count: int):
    return [of._get(index) for index in range(count)]


def test_row_k_is_request_k():
    """Requests would be drawn from a fit instead of being those of the file.

    Gaps 1, 2, 4, 0 have mean 1.75; at 0.07 requests a step a mean gap is 14.29 steps, the first
    one too, so arrivals are 14.29, then 8.16, 16.33, 32.65 and 0 later.
    """
    taken = first(stream(CSV, rate=0.07), 5)
    assert [(r.prompt_len, r.output_len) for r in taken] == [row[1:] for row in ROWS]
    assert [r.arrival for r in taken] == [14, 22, 38, 71, 71]


def test_it_begins_anew_after_the_last_row():
    """The run would end, or repeat the last request."""
    taken = first(stream(CSV), 12)
    assert [r.prompt_len for r in taken[5:10]] == [row[1] for row in ROWS]
    assert taken[10].prompt_len == 100 and len({r.text for r in taken}) == 12


def test_scaling_is_counted():
    """Lengths would be changed without a word. p99 of the totals is about 3,900: divided by 4."""
    scaled = stream(CSV, context=1024)
    taken = first(scaled, 5)
    assert [r.prompt_len for r in taken] == [25, 50, 75, 100, 1000]
    assert scaled.scaling.divide == 4 and scaled.scaling.divided == 5


def test_hash_ids_are_shared_parts():
    """Equal prefixes of a trace would not be equal in the run; divided, they shrink alike."""
    lines = [
        {"timestamp": 1000 * at, "input_length": 1030, "output_length": 4, "hash_ids": [1, 2, last]}
        for at, last in enumerate((3, 4))
    ]
    data = "\n".join(map(json.dumps, lines)).encode()
    a, b = first(stream(data, divide=1), 2)
    assert a.shared == ((1, 512), (2, 512), (3, 6)) and b.shared[:2] == a.shared[:2]
    (half,) = first(stream(data, divide=2), 1)
    assert half.shared == ((1, 256), (2, 256), (3, 3))
    (odd,) = first(stream(data, divide=3), 1)
    assert odd.shared == ()


def test_only_lengths_of_the_file():
    """A process of one's own could not be given to the file's lengths."""
    taken = first(stream(CSV, arrivals="steady", rate=0.5, outputs="fixed", output_mean=33), 3)
    assert [r.arrival for r in taken] == [2, 4, 6]
    assert [(r.prompt_len, r.output_len) for r in taken] == [(100, 33), (200, 33), (300, 33)]


def test_without_arrivals_they_come_as_poisson():
    """A list of lengths would not be served at all."""
    data = b"[[100, 20], [50, 30]]"
    kept = keep(read_trace(data), digest_of(data))
    assert settings_for(kept)["mix.arrivals"] == "poisson"


def test_a_name_that_leads_nowhere():
    """Another file's requests would be served under this name."""
    with pytest.raises(ConfigError, match="SHA-256 beef"):
        recorded(FILE + "beef")
    with pytest.raises(ConfigError, match="--trace FILE"):
        RequestStream(Mix(prompts="trace", trace=FILE + "beef"), 512, 1)


def test_all_at_once_is_a_steady_stream():
    """Gaps of a mean of 0 would be divided by it."""
    data = b"arrival,prompt_tokens,output_tokens\n7,100,5\n7,200,6\n7,300,7\n"
    assert [r.arrival for r in first(stream(data, rate=0.5), 4)] == [2, 4, 6, 8]


def test_more_rows_than_are_served_live(monkeypatch):
    """A file of millions of requests would fill the memory of a run."""
    trace = read_trace(CSV)
    monkeypatch.setattr(recorded_module, "_MOST_ROWS", 4)
    with pytest.raises(TraceError, match="5 requests: up to 4 are served live"):
        keep(trace, digest_of(CSV))


def test_the_oldest_file_makes_room(monkeypatch):
    """Every file that was ever given would stay in memory."""
    monkeypatch.setattr(recorded_module, "_kept", OrderedDict())
    monkeypatch.setattr(recorded_module, "_KEPT", 2)
    trace = read_trace(CSV)
    names = [keep(trace, digest).name for digest in ("a" * 64, "b" * 64, "c" * 64)]
    with pytest.raises(ConfigError, match="is not here"):
        recorded(names[0])
    assert [recorded(name).name for name in names[1:]] == names[1:]


def test_where_requests_come_from():
    """A recording of a file's requests could not be opened without the file."""
    assert source_of(FILE + "beef") == "requests of a file"
    assert source_of("azure-chat-2023").endswith("CC-BY-4.0")


def test_unreadable(tmp_path):
    """It would end in a traceback."""
    with pytest.raises(TraceError, match="can't be opened"):
        digest_of(tmp_path / "none.csv")
