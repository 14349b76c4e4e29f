"""Files of any size and packing: capped, with a message, and never opened as anything but text."""

from __future__ import annotations

import gzip
import io
import pickle
from pathlib import Path

import pytest

from kvviz.errors import TraceError
from kvviz.workloads.traces import source
from kvviz.workloads.traces.read import read_trace

TEXT = b"arrival,prompt,output\n" + b"".join(b"%d,5,6\n" % k for k in range(2000))


def test_path_bytes_and_open_file(tmp_path: Path) -> None:
    """One of them gives other rows, or a file that was handed in is closed."""
    path = tmp_path / "no-name-that-tells"
    path.write_bytes(TEXT)
    file = io.BytesIO(TEXT)
    assert {read_trace(s).rows for s in (path, str(path), TEXT, file)} == {2000}
    assert not file.closed


def test_gzip_is_known_by_its_content(tmp_path: Path) -> None:
    """A packed file needs the right ending, or is taken for text."""
    packed = gzip.compress(TEXT)
    path = tmp_path / "trace.csv"
    path.write_bytes(packed)
    assert read_trace(path).rows == read_trace(packed).rows == 2000


def test_damaged_gzip() -> None:
    """A download that was cut short loses its end without a word."""
    packed = gzip.compress(bytes(range(256)) * 40 + TEXT)
    for damaged in (gzip.compress(TEXT)[:-9], b"\x1f\x8b", packed[:40] + b"\0" * 40 + packed[80:]):
        with pytest.raises(TraceError):
            read_trace(damaged)


def test_a_small_packed_file_does_not_fill_the_memory() -> None:
    """A gigabyte of zeros packs into a megabyte."""
    with pytest.raises(TraceError, match="more than 10,000 bytes once unpacked"):
        read_trace(gzip.compress(TEXT), max_bytes=10_000)
    with pytest.raises(TraceError, match="more than 10,000 bytes"):
        read_trace(TEXT, max_bytes=10_000)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (pickle.dumps([1, 2, 3]), "never opened"),
        (b"PK\x03\x04rest", "zip"),
        (b"PAR1rest", "Parquet"),
        (b"\x28\xb5\x2f\xfdrest", "zstd"),
        (b"\x00\x01\x02", "no text"),
    ],
)
def test_what_is_no_text_is_named(data: bytes, what: str) -> None:
    """A pickle is loaded, or binary rows are shown as text."""
    with pytest.raises(TraceError, match=what):
        read_trace(data)


def test_overlong_lines_are_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line without an end is held in memory, or ends the load."""
    for module in ("source", "jsonl", "delimited"):
        monkeypatch.setattr(f"kvviz.workloads.traces.{module}.MAX_LINE", 200)
    row = '{"prompt_len": 5, "output_len": 6, "text": "%s"}\n'
    for text in (
        row % "a" + row % ("b" * 900) + row % "c",
        "prompt,output,text\n5,6,a\n5,6," + "b" * 900 + "\n5,6,c\n",
    ):
        trace = read_trace(text.encode())
        assert trace.rows == 2
        assert [r.reason for r in trace.set_aside.listed] == [source.OVERLONG]
        assert trace.set_aside.listed[0].line == text[: text.index("bb")].count("\n") + 1


def test_one_piece_of_json_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document must be held whole: a large one fills the memory."""
    monkeypatch.setattr(source, "MAX_DOCUMENT", 1000)
    assert read_trace(("[" + "[1, 2]," * 99 + "[1, 2]]").encode()).rows == 100
    with pytest.raises(TraceError, match="more than 1,000 characters.*JSON lines"):
        read_trace(("[" + "[1, 2]," * 199 + "[1, 2]]").encode())


def test_other_encodings() -> None:
    """A spreadsheet's UTF-16, or a name in Latin-1, loses the file."""
    assert read_trace(TEXT.decode().encode("utf-16")).rows == 2000
    assert read_trace("prompt,output,Größe\n1,2,ä\n".encode("latin-1")).rows == 1


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="can't be opened: No such file"):
        read_trace(tmp_path / "nope.csv")
    with pytest.raises(TraceError, match="can't be opened"):
        read_trace(tmp_path)
