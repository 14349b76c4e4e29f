"""Files that are no recordings, damaged ones, hostile ones: a message, and nothing else."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.errors import RecordingError
from kvviz.recording import files
from kvviz.recording.files import check_target, load, save, unpack
from kvviz.recording.recording import Recording
from tests.helpers import small
from tests.recording.made import record, recorded, unequal

MANIFEST = "manifest.json"


@pytest.fixture(scope="module")
def good() -> bytes:
    return recorded(40).data


def walk(read: Recording) -> None:
    """Ask for everything."""
    for lane in read.lanes:
        for index in range(len(read.steps)):
            read.snapshot(lane, index)
        read.events(lane)
        read.series(lane)


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(parts: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as file:
        for name, data in parts.items():
            file.writestr(name, data)
    return out.getvalue()


def with_member(data: bytes, name: str, new: bytes) -> bytes:
    """The file with another member and a checksum that fits it: what an attacker would make."""
    parts = members(data)
    manifest = json.loads(parts[MANIFEST])
    parts[name] = new
    manifest["members"][name] = {"bytes": len(new), "sha256": hashlib.sha256(new).hexdigest()}
    return zipped({**parts, MANIFEST: json.dumps(manifest).encode()})


def with_manifest(data: bytes, change: Callable[[dict], None]) -> bytes:
    parts = members(data)
    manifest = json.loads(parts[MANIFEST])
    change(manifest)
    return zipped({**parts, MANIFEST: json.dumps(manifest).encode()})


def parquet(columns: dict[str, object]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


@given(st.data())
@settings(max_examples=100)
def test_flipped_bytes(data: st.DataObject) -> None:
    """One wrong byte would show another run, or a traceback."""
    made = recorded(40)
    bad = bytearray(made.data)
    for _ in range(data.draw(st.integers(1, 3))):
        bad[data.draw(st.integers(0, len(bad) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        read = unpack(bytes(bad))
    except RecordingError:
        return
    walk(read)  # the flip hit what has no meaning, as the date in the zip's table
    for lane in read.lanes:
        assert unequal(made.snapshots[lane][-1], read.snapshot(lane, 39)) == []


@given(st.data())
@settings(max_examples=60)
def test_flipped_bytes_under_a_right_checksum(data: st.DataObject) -> None:
    """The Parquet reader would get through with an exception of its own."""
    made = recorded(40).data
    parts = members(made)
    name = data.draw(st.sampled_from(sorted(set(parts) - {MANIFEST})))
    bad = bytearray(parts[name])
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        walk(unpack(with_member(made, name, bytes(bad))))
    except RecordingError:
        return


@pytest.mark.parametrize("share", [0, 0.001, 0.2, 0.5, 0.9, 0.999])
def test_truncated(good: bytes, share: float) -> None:
    """Half a download would end in a traceback."""
    with pytest.raises(RecordingError):
        unpack(good[: int(share * len(good))])
    with pytest.raises(RecordingError):
        unpack(good[:-1])


@pytest.mark.parametrize(
    "data",
    [b"", b"PK", b"\x80\x04K\x01.", b"<html></html>" * 99, zipped({}), zipped({"a": b"b"}),
     zipped({MANIFEST: b"{}"}), zipped({MANIFEST: b"[1]"}), zipped({MANIFEST: b"\xff"}),
     zipped({MANIFEST: b"[" * 100_000})],
    # By hand: a zip's first bytes hold the time it was made
    ids=["empty", "two letters", "pickle", "page", "no member", "another member", "empty manifest",
         "list", "no text", "deep"],
)  # fmt: skip
def test_what_is_no_recording(data: bytes) -> None:
    with pytest.raises(RecordingError):
        unpack(data)


def test_a_newer_format_is_told(good: bytes) -> None:
    """A file of a later kvviz would be misread."""
    bad = with_manifest(good, lambda m: m.update(format=99, kvviz="9.1"))
    with pytest.raises(RecordingError, match=r"by kvviz 9\.1 in format 99; .* up to format 1"):
        unpack(bad)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda m: m.pop("config"), "no config"),
        (lambda m: m.update(every="often"), "no every"),
        (lambda m: m.update(every=True), "no every"),
        (lambda m: m.update(device="x" * 9999), "longer than"),
        (lambda m: m["config"].update(lanes="paged,nope"), "there is no 'nope'"),
        (lambda m: m["config"].update(colour="red"), "unknown setting 'colour'"),
        (lambda m: m.update(recorded=7), "different steps"),
        (lambda m: m.update(members={}), "damaged"),
        (lambda m: m.update(report=3), "no report"),
    ],
)  # fmt: skip
def test_a_manifest_that_can_not_be(good: bytes, change: Callable, said: str) -> None:
    with pytest.raises(RecordingError, match=said):
        unpack(with_manifest(good, change))


def test_a_packed_member_is_refused(good: bytes) -> None:
    """A zip bomb unpacks to gigabytes before anybody looks at it."""
    bomb = zipped({**members(good), "clock.parquet": b"\0" * (1 << 24)}, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 1 << 20
    with pytest.raises(RecordingError, match="is packed"):
        unpack(bomb)


def test_a_table_that_unpacks_to_too_much_is_refused(good: bytes) -> None:
    """Parquet packs a million equal numbers into some bytes."""
    count = 1 << 25
    bomb = parquet({name: np.zeros(count, np.int64) for name in ("step", "compared", "equal",
                                                                   "drawn")})  # fmt: skip
    assert len(bomb) < 1 << 20
    with pytest.raises(RecordingError, match="would unpack to 1,024 MiB"):
        unpack(with_member(good, "clock.parquet", bomb))


def test_one_long_word_in_many_rows_is_refused(good: bytes) -> None:
    """Parquet keeps it once; as text it would fill the memory."""
    columns = pq.read_table(io.BytesIO(members(good)["paged/events.parquet"])).to_pydict()
    columns = {name: values[:1] * 50_000 for name, values in columns.items()}
    columns["text"] = pa.DictionaryArray.from_arrays(
        pa.array([0] * 50_000, pa.int32()), pa.array(["x" * 100_000])
    )
    bomb = parquet(columns)
    assert len(bomb) < 1 << 21
    with pytest.raises(RecordingError, match="more than 4,096 characters"):
        unpack(with_member(good, "paged/events.parquet", bomb))


def test_a_tape_stops_before_it_is_too_long_to_be_read(monkeypatch) -> None:
    """The file of a long run could be written and never be opened again."""
    monkeypatch.setattr("kvviz.recording.tape._MOST_BYTES", 200_000)
    with pytest.raises(RecordingError, match="too large at step"):
        record(small({"dry": True}), 2000)
    assert len(unpack(record(small({"dry": True}), 20, every=5).data).steps) == 4


def test_a_column_of_another_kind_is_refused(good: bytes) -> None:
    clock = {name: [1.5] for name in ("step", "compared", "equal", "drawn")}
    with pytest.raises(RecordingError, match="step is no int64"):
        unpack(with_member(good, "clock.parquet", parquet(clock)))


def test_rows_that_contradict_each_other_are_told(good: bytes) -> None:
    """A pool with a gap in it would be drawn as if it were one."""
    table = pq.read_table(io.BytesIO(members(good)["paged/rows.parquet"])).to_pydict()
    table["size"][5] += 1
    kinds = {n: pa.int64() if n == "owner" else pa.int32() for n in table}
    bad = parquet({name: pa.array(values, kinds[name]) for name, values in table.items()})
    read = unpack(with_member(good, "paged/rows.parquet", bad))
    with pytest.raises(RecordingError, match="damaged"):
        read.snapshot("paged", 0)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [("steps", "grain", 0), ("steps", "slot_bytes", 0), ("steps", "capacity", 1 << 40),
     ("steps", "admissible", -5), ("steps", "head.need", 0), ("queue", "need", 0),
     ("sequences", "held", -9), ("rows", "used", -3)],
)  # fmt: skip
def test_numbers_that_can_not_be_are_told(good: bytes, table: str, column: str, value: int) -> None:
    """A page would divide by 0, or make a picture of a terabyte."""
    name = f"contiguous/{table}.parquet"
    found = pq.read_table(io.BytesIO(members(good)[name]))
    at = found.schema.names.index(column)
    new = pa.array([value] * len(found), found.schema.types[at])
    out = io.BytesIO()
    pq.write_table(found.set_column(at, column, new), out)
    read = unpack(with_member(good, name, out.getvalue()))
    with pytest.raises(RecordingError, match="damaged"):
        read.snapshot("contiguous", 39)


def test_a_large_file_is_refused_unread(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "huge.kvviz"
    with path.open("wb") as file:
        file.truncate(files.MAX_FILE_BYTES + 1)
    monkeypatch.setattr(Path, "read_bytes", lambda _: pytest.fail("it was read"))
    with pytest.raises(RecordingError, match="MiB"):
        load(path)


@pytest.mark.parametrize("path", ["nope.kvviz", ".", "a\0b"])
def test_what_can_not_be_opened(path: str) -> None:
    with pytest.raises(RecordingError, match="can't be read"):
        load(path)


def test_a_full_disk_leaves_no_half_file(tmp_path: Path, good: bytes, monkeypatch) -> None:
    """The last good recording would be lost with the new one."""
    path = tmp_path / "run.kvviz"
    path.write_bytes(b"the last one")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordingError, match="No space left on device"):
        save(good, path)
    assert path.read_bytes() == b"the last one"
    assert os.listdir(tmp_path) == ["run.kvviz"]


def test_a_target_is_checked_before_the_run(tmp_path: Path) -> None:
    """A long run would end without a file."""
    check_target(tmp_path / "run.kvviz")
    with pytest.raises(RecordingError, match="is a folder"):
        check_target(tmp_path)
    with pytest.raises(RecordingError, match="There is no folder"):
        check_target(tmp_path / "nope" / "run.kvviz")
