"""Our reader of GGUF against the library's, whose pieces it replaces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFEndian, GGUFReader, GGUFValueType, GGUFWriter

from kvviz.model import gguf_file

LISTS = {
    GGUFValueType.UINT8: [0, 255],
    GGUFValueType.INT8: [-1, 7, -128],
    GGUFValueType.UINT16: [65_535],
    GGUFValueType.INT32: [-(1 << 31), 3, 1],
    GGUFValueType.UINT64: [1 << 63, 0],
    GGUFValueType.FLOAT32: [0.5, -1.25],
    GGUFValueType.FLOAT64: [1e300],
    GGUFValueType.BOOL: [True, False, True],
    GGUFValueType.STRING: ["", "Ġa", "b" * 300],
}


def write(path: Path, lists: dict[str, tuple], endian: GGUFEndian = GGUFEndian.LITTLE) -> Path:
    """A file with these lists, as {name: (values, kind of each)}, and a tensor."""
    writer = GGUFWriter(path, "llama", endianess=endian)
    for name, (values, kind) in lists.items():
        writer.add_key_value(name, values, GGUFValueType.ARRAY, sub_type=kind)
    writer.add_string("a.text", "ünder")
    writer.add_float32("a.number", 0.25)
    writer.add_tensor("token_embd.weight", np.arange(32, dtype=np.float32).reshape(4, 8))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("endian", GGUFEndian, ids=lambda e: e.name)
def test_all_kinds_of_lists_are_read_as_the_library_reads_them(endian, tmp_path):
    """The tokenizer would have other words, or another type for each."""
    made = {f"list.{kind.name}": (values, kind) for kind, values in LISTS.items()}
    path = write(tmp_path / "a.gguf", made, endian)
    theirs, ours = GGUFReader(path), gguf_file._reader(path)
    assert list(ours.fields) == list(theirs.fields)
    for name, field in theirs.fields.items():
        found = ours.fields[name]
        assert (found.contents(), found.types) == (field.contents(), field.types), name
    for name, (values, _) in made.items():
        assert ours.fields[name].contents() == values
    (tensor,), (expected,) = ours.tensors, theirs.tensors
    assert (tensor.name, tensor.data_offset) == (expected.name, expected.data_offset)
    assert np.array_equal(tensor.data, expected.data)


def test_a_long_list_is_read_at_once(tmp_path, monkeypatch):
    """Entry by entry a file of one megabyte took 25 s."""
    asked = []
    get = GGUFReader._get
    monkeypatch.setattr(GGUFReader, "_get", lambda *a, **k: asked.append(1) or get(*a, **k))
    count = 5000
    lists = {
        "numbers": ([1] * count, GGUFValueType.UINT8),
        "words": (["x"] * count, GGUFValueType.STRING),
    }
    found = gguf_file._reader(write(tmp_path / "a.gguf", lists)).fields
    assert found["numbers"].contents() == [1] * count
    assert found["words"].contents() == ["x"] * count
    assert len(asked) < 100


@pytest.mark.parametrize("kind", [GGUFValueType.UINT16, GGUFValueType.STRING])
def test_a_list_that_the_file_ends_in(kind, tmp_path):
    path = write(tmp_path / "a.gguf", {"list": (LISTS[kind] * 9, kind)})
    data = path.read_bytes()
    at = data.index(b"list") + 4 + 4 + 4  # the name, that it is a list, and of what
    path.write_bytes(data[:at] + (1 << 33).to_bytes(8, "little") + data[at + 8 :])
    with pytest.raises(ValueError, match="in the middle of what it announces"):
        gguf_file._reader(path)
