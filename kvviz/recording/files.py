"""Recordings on disk: one zip, checked before anything in it is believed."""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kvviz.errors import RecordingError
from kvviz.recording.manifest import Manifest, read_manifest
from kvviz.recording.recording import Recording, damaged
from kvviz.recording.schema import LOOKS, LOOKS_NAME, tables_of
from kvviz.recording.tables import Table, read_table

SUFFIX = ".kvviz"
MAX_FILE_BYTES = 256 << 20
MAX_UNPACKED_BYTES = 512 << 20  # of all columns together
_MANIFEST = "manifest.json"
_MANIFEST_BYTES = 1 << 20
_EPOCH = (1980, 1, 1, 0, 0, 0)  # zip's first day: equal runs give equal files but for times


def pack(manifest: Manifest, members: dict[str, bytes]) -> bytes:
    """The file's bytes. The manifest gets the members' sizes and checksums."""
    listed = {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in members.items()
    }
    text = replace(manifest, members=listed).as_json().encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as file:
        for name, data in {_MANIFEST: text, **members}.items():
            file.writestr(zipfile.ZipInfo(name, _EPOCH), data)
    return out.getvalue()


def unpack(data: bytes) -> Recording:
    """Raises RecordingError for anything that is not a whole recording of a known format."""
    if len(data) > MAX_FILE_BYTES:
        raise _too_large(len(data))
    try:
        return _unpack(data)
    except RecordingError:
        raise
    except Exception as error:  # zip and Parquet parsers fail in many ways on damaged bytes
        raise damaged(error) from error


def load(path: str | Path) -> Recording:
    """Read a file that `save` wrote. Raises RecordingError."""
    try:
        size = os.stat(path).st_size
        if size > MAX_FILE_BYTES:
            raise _too_large(size)
        data = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or str(error)
        raise RecordingError(f"{path} can't be read: {said}.") from error
    return unpack(data)


def save(data: bytes, path: str | Path) -> None:
    """Write the file as a whole or not at all. Raises RecordingError."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, ValueError) as error:
        with suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)
        said = getattr(error, "strerror", None) or str(error)
        raise RecordingError(
            f"{path} can't be written: {said}. Nothing was left there; "
            f"{len(data) >> 10:,} KiB are needed."
        ) from error


def check_target(path: str | Path) -> None:
    """Before a long run: could a file be written there? Raises RecordingError."""
    path = Path(path)
    if not str(path).isprintable():
        raise RecordingError(f"{path} is no file name. Name a file, such as run{SUFFIX}.")
    if path.is_dir():
        raise RecordingError(f"{path} is a folder. Name a file, such as run{SUFFIX}.")
    if not path.parent.is_dir():
        raise RecordingError(f"There is no folder {path.parent}. Make it first.")
    if not os.access(path.parent, os.W_OK):
        raise RecordingError(f"{path.parent} can't be written to. Choose another folder.")


def _unpack(data: bytes) -> Recording:
    if not data.startswith(b"PK"):
        raise RecordingError("The file is no recording of kvviz. Save one with --record.")
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        infos = {info.filename: info for info in file.infolist()}
        for info in infos.values():  # stored members can't be larger than the file
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > len(data):
                raise RecordingError(f"{info.filename!r} is packed: no recording of kvviz is.")
        if _MANIFEST not in infos or infos[_MANIFEST].file_size > _MANIFEST_BYTES:
            raise RecordingError("The file has no manifest: it is no recording of kvviz.")
        manifest = read_manifest(file.read(_MANIFEST))
        tables: dict[str, Table] = {}
        left = MAX_UNPACKED_BYTES
        wanted = tables_of(manifest.lanes)
        if LOOKS_NAME in infos:
            wanted[LOOKS_NAME] = LOOKS
        for name, columns in wanted.items():
            member = file.read(infos[name]) if name in infos else b""
            if hashlib.sha256(member).hexdigest() != manifest.members[name]["sha256"]:
                raise RecordingError(
                    f"{name} is damaged: its checksum differs. Record the run again."
                )
            tables[name] = read_table(member, columns, name, left)
            left -= sum(_bytes_of(values) for values in tables[name].values())
    return Recording(manifest, tables)


def _bytes_of(values: object) -> int:
    return getattr(values, "nbytes", 0) or 8 * len(values)  # type: ignore[arg-type]


def _too_large(size: int) -> RecordingError:
    return RecordingError(
        f"The file has {size >> 20:,} MiB; recordings have up to {MAX_FILE_BYTES >> 20} MiB. "
        "Record every n-th step only (--record-every)."
    )
