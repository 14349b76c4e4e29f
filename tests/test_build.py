"""Where the parts are joined: lanes of one run share the model, the prompts and the budget."""

from __future__ import annotations

import pytest

from kvviz import build
from kvviz.build import Backend
from kvviz.engine.forward import DryForward
from kvviz.shapes import ModelShape
from tests.helpers import lanes, small


def test_lanes_share_weights_and_budget(backend: Backend) -> None:
    """Each lane has weights of its own, or a budget that the other one does not see."""
    with lanes(small(), backend) as built:
        forwards = [engine.forward for engine in built.engines.values()]
        assert list(built.engines) == ["contiguous", "paged"]
        assert forwards[0].model is forwards[1].model is backend.model
        assert forwards[0].store is not forwards[1].store
        assert backend.budget.used_bytes == sum(f.store.nbytes for f in forwards)
    assert backend.budget.used_bytes == 0


def test_dry_lanes_need_no_backend() -> None:
    """A dry run loads a model, or counts other bytes a slot than the shipped model takes."""
    with lanes(small({"dry": True})) as built:
        for engine in built.engines.values():
            assert isinstance(engine.forward, DryForward)
            assert engine.slot_bytes == ModelShape().slot_bytes(4) == 2 * 4 * 2 * 32 * 4


def test_backend_is_loaded_once_for_all_lanes(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lanes without a backend take two models and half of the host's memory each."""
    loaded: list[str] = []

    def load(folder: str) -> Backend:
        loaded.append(folder)
        return backend

    monkeypatch.setattr(build, "load_backend", load)
    with lanes(small()):
        assert loaded == [""]
