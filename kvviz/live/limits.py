"""What one server process gives to all its visitors together, from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from kvviz.caches.budget import MiB, PoolBudget
from kvviz.errors import ConfigError


class Limits(NamedTuple):
    """runners: people at once; grace: seconds that a runner outlives its session, for a socket
    that drops comes back; pool_mib: of all pools together, 0 for half of the free memory."""

    runners: int = 20
    grace: float = 20.0
    pool_mib: int = 0

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Limits:
        """KVVIZ_RUNNERS, KVVIZ_GRACE_SECONDS, KVVIZ_POOL_MIB. Raises ConfigError."""
        return cls(
            int(_read(environment, "KVVIZ_RUNNERS", cls().runners, 1, 10_000)),
            _read(environment, "KVVIZ_GRACE_SECONDS", cls().grace, 0, 3600),
            int(_read(environment, "KVVIZ_POOL_MIB", cls().pool_mib, 0, 1 << 24)),
        )

    def budget(self) -> PoolBudget:
        return PoolBudget(self.pool_mib * MiB) if self.pool_mib else PoolBudget.of_host()


def _read(
    environment: Mapping[str, str], name: str, usual: float, low: float, high: float
) -> float:
    text = environment.get(name, "")
    try:
        value = float(text) if text else usual
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise ConfigError(f"{name}={text}: a number from {low:g} to {high:g} was expected.")
    return value
