"""The snapshot bench must picture a busy pool, and count all of it."""

from __future__ import annotations

import pytest

from kvviz.bench.snapshot import busy_engine, every_metric
from kvviz.metrics import balance_of


@pytest.mark.parametrize("layout", ["paged", "contiguous"])
def test_the_pool_is_busy_and_has_holes(layout):
    """An empty pool is pictured at no cost."""
    engine = busy_engine(layout, 64 * 1024, running=64)
    snapshot = engine.snapshot()
    engine.layout.check()
    snapshot.check()
    assert balance_of(snapshot).balanced
    assert 0.5 < snapshot.columns.taken / snapshot.capacity < 1
    assert len(snapshot.columns.holes[0]) > 1
    every_metric(snapshot, 500)
