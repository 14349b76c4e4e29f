"""Resident memory of this process, and whether it grows."""

from __future__ import annotations

import gc
import os
import statistics

FEWEST = 8  # readings from which growth can be told
_WARM_UP = 0.25  # share of the readings that is set aside
_PART = 0.25  # share of the rest that is compared at each end


def resident_bytes() -> int:
    """After a full collection. Raises OSError where there is no /proc."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as line:
        return int(line.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth(readings: list[int]) -> float | None:
    """The end over the beginning after warm-up, less 1, by medians; None: too few readings."""
    rest = readings[int(len(readings) * _WARM_UP) :]
    if len(rest) < FEWEST:
        return None
    part = max(2, int(len(rest) * _PART))
    return statistics.median(rest[-part:]) / statistics.median(rest[:part]) - 1
