"""A range of addresses whose memory comes and goes page by page, by the system's own paging.

    reserve     |. . . . . . . . . . . .|     addresses only: no memory is taken
    touch       |# # # . . . # . . . . .|     the system gives a page at the first write
    give_back   |# . . . . . # . . . . .|     the page is gone; its addresses read as zeros

Linux only. What is really taken is read from /proc/self/pagemap: exact to the page and for this
range alone. The other two ways blur: `mincore` counts addresses that were only read (they show the
system's one page of zeros), and /proc/self/smaps counts a neighbour that the kernel has merged
with this range. It costs about 7 ms for a range of 1 GiB.
"""

from __future__ import annotations

import mmap
import sys

import numpy as np

from kvviz.errors import CapacityError, KvvizError

OS_PAGE = mmap.PAGESIZE
_PAGEMAP = "/proc/self/pagemap"
# Bits of a pagemap entry: in memory, and mapped by this process alone (the page of zeros is not).
_TAKEN = np.uint64(1 << 63 | 1 << 56)
_CHUNK = 1 << 20  # entries read at a time: 8 MiB
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # named since Python 3.12


def available() -> str | None:
    """Why this machine can't give memory back page by page, or None when it can."""
    if sys.platform != "linux":
        return f"Giving memory back page by page needs Linux; this is {sys.platform}."
    return None


class ReservedRange:
    """`total_bytes` of addresses. Offsets and lengths are bytes; `buffer` is the memory.

    Raises KvvizError where the system can't, CapacityError when it has no such range.
    """

    def __init__(self, total_bytes: int, page_bytes: int = OS_PAGE) -> None:
        if reason := available():
            raise KvvizError(f"{reason} Choose the contiguous or the paged layout.")
        if page_bytes % OS_PAGE:
            raise KvvizError(
                f"a page of {page_bytes:,} bytes is no multiple of the system's {OS_PAGE:,}. "
                "Choose another page size."
            )
        self.page_bytes = page_bytes
        self.total_bytes = -(-total_bytes // page_bytes) * page_bytes
        try:
            self.buffer = mmap.mmap(
                -1,
                self.total_bytes,
                flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE,
            )
        except (OSError, OverflowError, ValueError) as error:
            raise CapacityError(
                f"the system reserves no {self.total_bytes / (1 << 30):,.1f} GiB of addresses "
                f"({error}). Lower memory.context or memory.slots."
            ) from error
        # A huge page would be given for the first byte touched in 2 MiB, and not be given back.
        self.buffer.madvise(mmap.MADV_NOHUGEPAGE)
        self._bytes = np.frombuffer(self.buffer, np.uint8)
        self._first = self._bytes.ctypes.data // OS_PAGE

    def touch(self, offset: int, length: int) -> None:
        """Have memory under [offset, offset + length) now. What it holds stays as it is."""
        self._within(offset, length)
        first = self._bytes[offset : offset + length : OS_PAGE]
        np.bitwise_or(first, 0, out=first)
        if length:
            self._bytes[offset + length - 1] |= 0

    def give_back(self, offset: int, length: int) -> None:
        """Give back the memory of these pages; they read as zeros. Both in whole pages."""
        self._within(offset, length)
        assert offset % self.page_bytes == 0 == length % self.page_bytes, (
            f"[{offset}, {offset + length}) is not in whole pages of {self.page_bytes}"
        )
        if length:
            self.buffer.madvise(mmap.MADV_DONTNEED, offset, length)

    def resident_bytes(self) -> int:
        """Memory that the system has under this range now, as the kernel counts it."""
        if self._bytes is None:
            return 0
        taken = 0
        try:
            with open(_PAGEMAP, "rb", buffering=0) as entries:
                entries.seek(self._first * 8)
                left = self.total_bytes // OS_PAGE
                while left:
                    read = np.frombuffer(entries.read(8 * min(left, _CHUNK)), np.uint64)
                    taken += int(np.count_nonzero(read & _TAKEN == _TAKEN))
                    left -= len(read)
                    if not len(read):
                        raise OSError("it ends before the range does")
        except OSError as error:
            raise KvvizError(
                f"{_PAGEMAP} can't be read ({error}), so memory can't be counted here. "
                "Run outside of the sandbox that hides it."
            ) from error
        return taken * OS_PAGE

    def close(self) -> None:
        """Give all memory back. May be called twice. Arrays over `buffer` keep the addresses
        (not the memory) until they are gone."""
        if self._bytes is None:
            return
        self.buffer.madvise(mmap.MADV_DONTNEED)
        self._bytes = None  # type: ignore[assignment]  # nobody uses what was closed
        self.buffer = None  # type: ignore[assignment]

    def _within(self, offset: int, length: int) -> None:
        assert offset >= 0 and length >= 0 and offset + length <= self.total_bytes, (
            f"[{offset}, {offset + length}) leaves the range of {self.total_bytes} bytes"
        )
