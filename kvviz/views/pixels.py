"""From cells to a picture: palette indices, the marks that tell them apart, and the PNG.

All marks repeat every eight pixels, and a cell is as wide as a power of two: so what a cell looks
like follows from its index and its place within eight, and is looked up in whole tiles.
"""

from __future__ import annotations

import base64
import struct
import zlib
from functools import lru_cache
from itertools import chain

import numpy as np
from isal import isal_zlib

from kvviz.views.theme import PATTERNS

HUES = 12
LINE, HOLE, STUCK, REST, CACHED = range(5)
FIRST = 6  # FIRST + 2 * look written, + 1 reserved; a look is hue + 12 * pattern
INK = FIRST + 2 * HUES * len(PATTERNS)  # then what the patterns are drawn with
SHARED = 128  # added to what several sequences hold
_PERIOD = 8


def paint(codes: np.ndarray, scale: int, starts: np.ndarray | None = None) -> np.ndarray:
    """Pixels uint8 [rows * scale, columns * scale] of palette indices uint8 [rows, columns].

    scale: pixels a cell, a power of two. starts: bool, as `codes`: a line on the left of these.
    """
    assert scale & (scale - 1) == 0 < scale, f"{scale} pixels a cell: no power of two"
    rows, columns = codes.shape
    tile = min(scale, _PERIOD)
    wide, phases = scale // tile, _PERIOD // tile
    index = codes & (SHARED - 1)
    if wide > 1:
        index = index.repeat(wide, axis=1)
    if starts is not None:
        lined = max(1, _line_width(scale) // tile)  # tiles with a part of the line
        first = index.reshape(rows, columns, wide)[..., :lined]
        first |= (starts.astype(np.uint8) * SHARED)[..., None]
    at = index + (np.arange(columns * wide) % phases << 8)
    looks = _tiles(scale)
    out = np.empty((rows, wide, tile, columns * wide), looks.dtype)
    for phase in range(phases):
        those = at[phase::phases]
        for y in range(tile):
            out[phase::phases, :, y] = looks[phase * tile + y].take(those)[:, None]
    pixels = out.view(np.uint8).reshape(rows * scale, columns * scale)
    shared = codes >= SHARED
    if shared.any():
        dotted = shared.repeat(scale, 1).repeat(scale, 0) & _dots(*pixels.shape)
        np.copyto(pixels, LINE, where=dotted)
    return pixels


def png(pixels: np.ndarray, colours: list[tuple[int, int, int]]) -> str:
    """An indexed picture uint8 [height, width], as a data URL."""
    height, width = pixels.shape
    lines = np.zeros((height, 1 + width), np.uint8)
    lines[:, 1:] = pixels
    # A line like the one above it is told as the difference (filter 2), which packs at once
    again = (pixels[1:] == pixels[:-1]).all(axis=1).nonzero()[0] + 1
    lines[again] = 0
    lines[again, 0] = 2
    parts = (
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        _chunk(b"PLTE", bytes(chain.from_iterable(colours))),
        _chunk(b"IDAT", isal_zlib.compress(lines.data, _LEVEL)),
        _chunk(b"IEND", b""),
    )
    content = b"\x89PNG\r\n\x1a\n" + b"".join(parts)
    return "data:image/png;base64," + base64.b64encode(content).decode()


_LEVEL = 1  # of 0 to 3


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(content, zlib.crc32(kind))
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


def _line_width(scale: int) -> int:
    return -(-scale // 4)


@lru_cache(maxsize=16)
def _tiles(scale: int) -> np.ndarray:
    """For y within eight, and 256 * phase + index (+ 128 with a line on the left), the pixels of a
    tile as one number: uint of 8 bits a pixel [8, phases * 256]."""
    tile = min(scale, _PERIOD)
    y, x, every = np.ogrid[:_PERIOD, :_PERIOD, :256]
    code, lined = every & (SHARED - 1), every >= SHARED
    reserved = (code >= FIRST) & (code & 1 > 0)
    shown = np.where(reserved & ((x + y) % 8 < 3), HOLE, _inked(code, x, y))
    shown = np.where(lined & (x % tile < _line_width(scale)), LINE, shown).astype(np.uint8)
    looks = shown.reshape(_PERIOD, _PERIOD // tile, tile, 256).transpose(0, 1, 3, 2)
    return np.ascontiguousarray(looks).view(f"u{tile}").reshape(_PERIOD, -1)


def _inked(code: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The index to show at these pixels: the ink's where the pattern of `code` has a mark."""
    pattern = np.where((code >= FIRST) & (code < INK), (code - FIRST) // (2 * HUES), 0)
    rows, columns = y % 8 < 3, x % 8 < 3
    checks = (x // 4 + y // 4) % 2 == 0
    marked = np.select([pattern == i for i in range(1, 5)], [rows, columns, rows | columns, checks])
    return np.where(marked, INK + (code - FIRST) % (2 * HUES), code)


@lru_cache(maxsize=16)
def _dots(height: int, width: int) -> np.ndarray:
    y, x = np.ogrid[:height, :width]
    return (x % 6 < 2) & (y % 6 < 2)
