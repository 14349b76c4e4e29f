"""Bytes to lines: paths, bytes or open files, plain or gzip, with every size capped."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from kvviz.errors import TraceError

Source = str | Path | bytes | BinaryIO

MAX_BYTES = 2 << 30  # of a file once unpacked
MAX_LINE = 1 << 20  # characters; the longest rows of the public traces have 10,000
MAX_DOCUMENT = 64 << 20  # characters of a file that must be parsed as one piece of JSON
MOST_RATIO = 20  # of an unpacked file to its gzip; public traces have 3 to 10
_FREE = 4 << 20  # bytes that any gzip may unpack to
_PIECE = 1 << 16
OVERLONG = f"line longer than {MAX_LINE:,} characters"

_BINARY = {
    b"PK\x03\x04": "a zip archive: unpack it and give the file inside",
    b"PAR1": "a Parquet file: save it as CSV or JSON lines",
    b"\x80\x02": "a Python pickle, which is never opened: save it as CSV or JSON lines",
    b"\x80\x03": "a Python pickle, which is never opened: save it as CSV or JSON lines",
    b"\x80\x04": "a Python pickle, which is never opened: save it as CSV or JSON lines",
    b"\x80\x05": "a Python pickle, which is never opened: save it as CSV or JSON lines",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: unpack it, or use gzip",
    b"BZh": "compressed with bzip2: unpack it, or use gzip",
    b"\xfd7zXZ": "compressed with xz: unpack it, or use gzip",
}


class _Capped(io.RawIOBase):
    """Reads on until the cap, so that a small packed file cannot fill the disk or the memory.
    `packed`: what the inner file unpacks."""

    def __init__(
        self, inner: BinaryIO | gzip.GzipFile, cap: int, packed: _Capped | None = None
    ) -> None:
        self._inner, self._left, self._cap = inner, cap, cap
        self._packed = packed

    @property
    def taken(self) -> int:
        """Bytes that were read so far."""
        return self._cap - self._left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._inner.read(len(buffer))
        self._left -= len(piece)
        if self._left < 0:
            raise TraceError(
                f"the file has more than {self._cap:,} bytes once unpacked. Cut it into parts "
                "and read one."
            )
        if self._packed and self.taken > max(_FREE, MOST_RATIO * self._packed.taken):
            raise TraceError(
                f"the gzip unpacks to more than {MOST_RATIO} times its size. Unpack it and give "
                "the file inside."
            )
        buffer[: len(piece)] = piece
        return len(piece)


class Lines:
    """The file as text, a line at a time. Use as a context manager; raises TraceError where the
    file can't be opened, is packed in an unknown way, is damaged, or grows past the cap."""

    def __init__(self, source: Source, max_bytes: int = MAX_BYTES) -> None:
        self._mine = isinstance(source, str | Path | bytes)
        self._file = _opened(source)
        self._text = _decoded(self._file, max_bytes)
        self._back: list[str] = []
        self.number = 0
        """Of the line handed out last, from 1."""

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self._text.close()  # stops at _Capped: a file that was handed in stays open
        if self._mine:
            self._file.close()

    def next(self) -> str | None:
        """The next line with its end; None after the last. An overlong one is cut to
        MAX_LINE + 1 characters and the rest of it passed over."""
        line = self._back.pop() if self._back else self._readline()
        if not line:
            return None
        self.number += 1
        if len(line) > MAX_LINE and not line.endswith("\n"):
            self._pass_over()
        return line

    def peek(self) -> str:
        """The next line that is not blank (blank ones before it are passed over); at most
        MAX_LINE + 1 characters of it. Empty at the end of the file."""
        while not self._back:
            line = self._readline()
            if not line:
                return ""
            if line.strip():
                self._back.append(line)
            else:
                self.number += 1
        return self._back[-1]

    def rest(self) -> str:
        """All that is left, which must be less than MAX_DOCUMENT characters."""
        pieces = [self._back.pop() if self._back else ""]
        left = MAX_DOCUMENT + 1 - len(pieces[0])
        try:
            # A read makes room for all that it is asked for, however short the file is
            while left > 0 and (piece := self._text.read(min(left, _PIECE))):
                pieces.append(piece)
                left -= len(piece)
        except (EOFError, zlib.error, OSError, UnicodeError) as error:
            raise self._stopped(error) from error
        text = "".join(pieces)
        if len(text) > MAX_DOCUMENT:
            raise TraceError(
                f"one piece of JSON of more than {MAX_DOCUMENT:,} characters: save one object a "
                "line (JSON lines) and it is read as it comes."
            )
        return text

    def _readline(self) -> str:
        try:
            return self._text.readline(MAX_LINE + 1)
        except (EOFError, zlib.error, OSError, UnicodeError) as error:
            raise self._stopped(error) from error

    def _pass_over(self) -> None:
        while (piece := self._readline()) and not piece.endswith(("\n", "\r")):
            pass

    def _stopped(self, error: Exception) -> TraceError:
        if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
            return TraceError(
                f"the gzip is damaged or cut short after line {self.number:,}. Fetch it again."
            )
        return TraceError(f"reading stopped after line {self.number:,}: {error}.")


def _opened(source: Source) -> BinaryIO:
    if isinstance(source, bytes):
        return io.BytesIO(source)
    if not isinstance(source, str | Path):
        return source
    try:
        return open(source, "rb")
    except (OSError, ValueError) as error:  # a zero, or half a sign, in the name
        said = getattr(error, "strerror", None) or "it is no file name"
        raise TraceError(f"{source} can't be opened: {said}.") from error


def _decoded(file: BinaryIO, max_bytes: int) -> io.TextIOWrapper:
    whole = _Capped(file, max_bytes)
    buffered = io.BufferedReader(whole)
    try:
        if buffered.peek(2)[:2] == b"\x1f\x8b":
            unpacked = gzip.GzipFile(fileobj=buffered)
            buffered = io.BufferedReader(_Capped(unpacked, max_bytes, whole))
        head = buffered.peek(4096)[:4096]
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"the file can't be read: {error}.") from error
    for magic, what in _BINARY.items():
        if head.startswith(magic):
            raise TraceError(f"this is {what}.")
    encoding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    if encoding != "utf-16" and b"\0" in head:
        raise TraceError("this is no text: CSV, JSON or JSON lines were expected.")
    return io.TextIOWrapper(buffered, encoding, errors="replace", newline="")
