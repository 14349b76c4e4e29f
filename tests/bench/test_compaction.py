"""The compaction bench must copy what it says it copies."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.bench.compaction import WAYS, compact
from kvviz.caches.store import POISONED


@pytest.mark.parametrize("way", WAYS)
def test_what_was_written_is_there_after_the_moves(way):
    """A copy that loses K and V would be the fastest."""
    run, store = compact(2048, way)
    try:
        held = np.flatnonzero(store.tags != POISONED)
        owners = store.tags[held] >> 32
        k = store.view[0, 0, held, 0, 0].numpy()
        assert np.array_equal(k, owners.astype(k.dtype))
        assert 0 < run.slots <= 2048
    finally:
        store.close()


def test_fewest_moves_less_than_a_full_slide():
    """The two ways would be one."""
    runs = {}
    for way in WAYS:
        runs[way], store = compact(2048, way)
        store.close()
    assert runs["fewest slots"].slots < runs["full slide"].slots
