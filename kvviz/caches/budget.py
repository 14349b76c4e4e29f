"""One budget of pool bytes for all lanes that share it."""

from __future__ import annotations

import os
import threading

from kvviz.errors import CapacityError

MiB = 1 << 20


def host_memory_bytes() -> int:
    """Memory that the host could hand out now, from /proc/meminfo, else all of it."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class PoolBudget:
    """Bytes that pools may take together. Thread-safe.

    provisional: the limit is the host's, until it is known where the pools will be.
    """

    def __init__(self, limit_bytes: int, *, provisional: bool = False) -> None:
        self.limit_bytes = limit_bytes
        self.provisional = provisional
        self.used_bytes = 0
        self._lock = threading.Lock()

    @classmethod
    def of_host(cls, share: float = 0.5) -> PoolBudget:
        """A share of the memory that is available now."""
        return cls(int(host_memory_bytes() * share), provisional=True)

    def settle(self, limit_bytes: int) -> None:
        """Take the limit of the device that the pools are on, once and unless one was given."""
        with self._lock:
            if self.provisional:
                self.limit_bytes, self.provisional = limit_bytes, False

    def take(self, count_bytes: int) -> None:
        """Raises CapacityError, with the sizes, when the budget does not hold it."""
        with self._lock:
            if self.used_bytes + count_bytes > self.limit_bytes:
                left = self.limit_bytes - self.used_bytes
                raise CapacityError(
                    f"a pool of {count_bytes / MiB:,.0f} MiB does not fit: all pools together "
                    f"may take {self.limit_bytes / MiB:,.0f} MiB and "
                    f"{max(left, 0) / MiB:,.0f} MiB are left. Choose fewer slots, or close "
                    "other runs."
                )
            self.used_bytes += count_bytes

    def give_back(self, count_bytes: int) -> None:
        with self._lock:
            self.used_bytes -= count_bytes
