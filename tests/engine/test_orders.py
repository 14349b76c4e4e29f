"""Block tables of past steps are those that the layouts had, whatever the layout."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.build import build_lanes
from kvviz.caches.layouts import LANES
from kvviz.engine.orders import Orders
from tests.helpers import small

BUSY = {
    "dry": True,
    "mix.rate": 0.8,
    "mix.samples": 2,
    "engine.preemption": "swap",
    "engine.swap_slots": 256,
    "contiguous.compaction": "on_refusal",
}
STEPS = 90


def truth(layout, request: int) -> list[int]:
    """The slots of a running request, asked of the layout itself."""
    if hasattr(layout, "frames"):
        pages = layout.frames(request)[:, None] * layout.page_slots
        return (
            (pages + np.arange(layout.page_slots)).reshape(-1)[: layout.written(request)].tolist()
        )
    slots = layout.slots(request)
    return list(range(slots.start, slots.stop)) if isinstance(slots, slice) else slots.tolist()


def record(
    name: str, orders: Orders, steps: int = STEPS, after: Orders | None = None, switch: int = 0
) -> list[dict[int, list[int]]]:
    """after: takes the steps from `switch` on."""
    lanes = build_lanes(small({"lanes": name, **BUSY}))
    engine, shown = lanes.engines[name], []
    for step in range(1, steps + 1):
        lanes.step()
        shot = engine.snapshot()
        orders = after if after is not None and step >= switch else orders
        orders.add(shot.step, engine.layout, shot.seq_id.tolist(), shot.seq_used)
        shown.append({request: truth(engine.layout, request) for request in shot.seq_id.tolist()})
    return shown


def told(orders: Orders, step: int, request: int, written: int) -> list[int] | None:
    slots = orders.slots(step, request, written)
    return None if slots is None else slots.tolist()


@pytest.mark.parametrize("name", LANES)
def test_every_table_of_every_step_comes_back(name: str) -> None:
    """The lines from tokens to slots would lead to another request's memory."""
    orders = Orders()
    shown = record(name, orders)
    assert sum(map(len, shown)) > 300
    for step, tables in enumerate(shown, 1):
        for request, slots in tables.items():
            assert told(orders, step, request, len(slots)) == slots, (step, request)


def test_steps_that_are_not_kept_are_forgotten() -> None:
    """Memory would grow with the run."""
    orders = Orders()
    shown = record("paged", orders)
    before = orders.nbytes
    orders.forget(STEPS)
    assert orders.nbytes < before / 2
    for request, slots in shown[-1].items():
        assert told(orders, STEPS, request, len(slots)) == slots
    gone = shown[9].keys() - shown[-1].keys() - shown[-2].keys()
    assert gone
    for request in gone:
        assert told(orders, 10, request, len(shown[9][request])) is None


def test_the_budget_holds_and_who_runs_is_kept() -> None:
    """Rather no order than the history's memory twice."""
    orders = Orders(budget_bytes=20_000)
    shown = record("scattered", orders)
    assert orders.nbytes <= 20_000
    for request, slots in shown[-1].items():
        assert told(orders, STEPS, request, len(slots)) == slots
    missing = sum(
        told(orders, step, request, len(slots)) is None
        for step, tables in enumerate(shown, 1)
        for request, slots in tables.items()
    )
    assert missing > 0


def test_an_unknown_request_has_no_order() -> None:
    orders = Orders()
    assert orders.slots(3, 7, 10) is None
    record("paged", orders, 5)
    assert orders.slots(0, 0, 1) is None
    assert orders.slots(5, 10**6, 1) is None


@pytest.mark.parametrize("name", ["paged", "scattered", "contiguous"])
def test_earlier_steps_are_put_before(name: str) -> None:
    """A link's run makes its newest step first; those behind it would have no order."""
    first, orders = Orders(), Orders()
    shown = record(name, first, STEPS, orders, 50)
    orders.prepend(first)
    for step, tables in enumerate(shown, 1):
        for request, slots in tables.items():
            assert told(orders, step, request, len(slots)) == slots, (step, request)
    apart = orders.nbytes
    orders.forget(STEPS)
    assert orders.nbytes < apart / 2
    assert told(orders, STEPS, *next((r, len(s)) for r, s in shown[-1].items())) is not None
