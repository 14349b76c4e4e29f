"""What no code on this machine can beat, measured in the same run: bytes over bandwidth, calls
times what an empty call costs."""

from __future__ import annotations

import numpy as np

from kvviz.bench.result import cpu_milliseconds

_ROUNDS = 9


def copy_bandwidth(count_bytes: int) -> float:
    """Bytes a second that a plain copy of this many bytes moves, each read and written once."""
    source = np.ones(max(count_bytes, 8) // 8, np.int64)
    target = np.zeros_like(source)
    ms = cpu_milliseconds(lambda: np.copyto(target, source), _ROUNDS)
    return source.nbytes / (ms / 1e3)


def read_bandwidth(count_bytes: int) -> float:
    """Bytes a second that a sum of this many bytes reads."""
    source = np.ones(max(count_bytes, 8) // 8, np.int64)
    ms = cpu_milliseconds(source.max, _ROUNDS)
    return source.nbytes / (ms / 1e3)


def call_overhead() -> float:
    """Seconds that a call of an empty method takes."""

    class Nothing:
        def act(self, _: int) -> None:
            return None

    act, count = Nothing().act, 20_000

    def calls() -> None:
        for at in range(count):
            act(at)

    return cpu_milliseconds(calls, _ROUNDS) / 1e3 / count


def rate(bytes_a_second: float) -> str:
    """5.1 GB/s"""
    return f"{bytes_a_second / 1e9:,.1f} GB/s"
