"""Hostile recordings: the zip, its manifest, and tables with checksums that fit."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from functools import lru_cache
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kvviz.html.document import report
from kvviz.live.replayed import Replay
from kvviz.recording.files import unpack
from kvviz.ui.frames import charts, head, maps, stamp, tables
from kvviz.views.theme import LIGHT
from tests.fuzz.damage import NUMBERS, WORDS, broken_bytes, broken_value, one_of
from tests.fuzz.files import Input
from tests.recording.made import recorded

MANIFEST = "manifest.json"
_LANES = ("contiguous,paged", "buddy,virtual", "cells,split")


@lru_cache(maxsize=4)
def members(lanes: str = _LANES[0]) -> dict[str, bytes]:
    """The files inside of a good recording."""
    with zipfile.ZipFile(io.BytesIO(recorded(40, 1, lanes=lanes).data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def zipped(parts: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    """With checksums that fit, as somebody would who means harm."""
    manifest = json.loads(parts[MANIFEST])
    listed = manifest.get("members") if isinstance(manifest, dict) else None
    for name, data in parts.items():
        if isinstance(listed, dict) and isinstance(listed.get(name), dict):
            listed[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return packed({**parts, MANIFEST: json.dumps(manifest).encode()}, how)


def packed(parts: dict[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    """As they are."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as file:
        for name, data in parts.items():
            file.writestr(name, data)
    return out.getvalue()


def recording(random: Random) -> Input:
    """A `.kvviz` file, some of its steps drawn."""
    parts = dict(members(one_of(random, _LANES)))
    kind = random.randrange(8)
    if kind == 0:
        data = broken_bytes(random, zipped(parts))
    else:
        name = one_of(random, sorted(set(parts) - {MANIFEST}))
        if kind == 1:
            parts[name] = broken_bytes(random, parts[name])
        elif kind == 2:
            parts = _renamed(random, parts, name)
        elif kind < 6:
            parts[name] = _table(random, parts[name])
        else:
            value = broken_value(random, json.loads(parts[MANIFEST]))
            parts[MANIFEST] = json.dumps(value).encode()
        how = zipfile.ZIP_DEFLATED if random.randrange(20) == 0 else zipfile.ZIP_STORED
        data = zipped(parts, how)
    whole = random.randrange(400) == 0
    return Input(len(data), lambda: look(data, whole=whole), f"{len(data):,} bytes, kind {kind}")


def look(data: bytes, *, whole: bool = False) -> None:
    """Read, and draw as the page does. `whole`: the report too."""
    found = Replay(unpack(data))
    last = len(found.recording.steps) - 1
    for index in {0, last // 2, last}:
        published = found.at(index)
        drawn = {**maps(published, LIGHT, "request"), **charts(published, LIGHT)}
        json.dumps([drawn, head(published, LIGHT), tables(published)], allow_nan=False)
        stamp(published)
    if whole:
        report(found.recording)


def _table(random: Random, data: bytes) -> bytes:
    """Odd values in one or two columns of a table."""
    table = pq.read_table(io.BytesIO(data))
    for _ in range(1 + random.randrange(2)):
        at = random.randrange(table.num_columns)
        field = table.schema.field(at)
        values = table.column(at).to_pylist()
        for _ in range(1 + random.randrange(3)):
            if values:
                values[random.randrange(len(values))] = _cell(random, field.type)
        if random.randrange(10) == 0:
            values = [values[0] if values else _cell(random, field.type)] * len(values)
        table = table.set_column(at, field, pa.array(values, field.type))
    if random.randrange(6) == 0 and table.num_rows:
        table = table.slice(random.randrange(table.num_rows))
    if random.randrange(10) == 0:
        table = table.drop_columns([one_of(random, table.schema.names)])
    out = io.BytesIO()
    pq.write_table(table, out, compression=one_of(random, ["zstd", "none"]))
    return out.getvalue()


def _cell(random: Random, kind: Any) -> Any:
    if pa.types.is_string(kind):
        return one_of(random, [word for word in WORDS if word.isascii()])
    if pa.types.is_boolean(kind):
        return bool(random.randrange(2))
    if pa.types.is_floating(kind):
        return float(one_of(random, [n for n in NUMBERS if abs(n) < 1e300 or n != n]))
    bits = kind.bit_width - 1
    return int(
        one_of(random, [n for n in NUMBERS if isinstance(n, int) and -(1 << bits) <= n < 1 << bits])
    )


def _renamed(random: Random, parts: dict[str, bytes], name: str) -> dict[str, bytes]:
    """A member with a name that leads elsewhere, one too many, or one less."""
    found = {**parts}
    data = found.pop(name)
    kind = random.randrange(3)
    if kind == 0:
        return found
    if kind == 1:
        found[name] = data
    new = one_of(random, [word for word in WORDS if word.isprintable() and word][:30])
    return {**found, new[:200]: data}
