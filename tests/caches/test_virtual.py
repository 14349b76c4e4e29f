"""The virtually contiguous layout by hand, its tensors, and a lane of it beside a paged one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from kvviz.build import Backend
from kvviz.caches.budget import PoolBudget
from kvviz.caches.store import KVStore
from kvviz.caches.virtual import VirtualLayout
from kvviz.caches.virtual_store import VirtualStore, store_for
from kvviz.errors import CapacityError, ConfigError, KvvizError
from kvviz.records import CAPACITY, HOLE, NEVER, RESERVED, Freed, Mapped, Unmapped, Verdict
from kvviz.shapes import ModelShape
from tests.helpers import config, lanes, request, run_steps, small

PAGE = 1 << 16
CPU = torch.device("cpu")
# 2 layers, K and V, 2 heads of 32, 4 bytes: 1 KiB a slot, 64 slots in a page of 64 KiB
SHAPE = ModelShape(num_hidden_layers=2, num_key_value_heads=2, head_dim=32)
# As many bytes, of which a head has 32 a slot: 64 of them are half a page of the system
SLICED = ModelShape(num_hidden_layers=2, num_key_value_heads=8, head_dim=8)


def layout(changes: dict[str, Any] | None = None) -> VirtualLayout:
    """Six frames of 10 slots; ranges of three pages."""
    run = config({"memory.slots": 64, "memory.context": 30, **(changes or {})})
    return VirtualLayout(run, PAGE // 10)


@pytest.fixture
def deferred() -> VirtualLayout:
    return layout({"virtual.reclaim": "deferred"})


def admit(at: VirtualLayout, id: int, tokens: int, output: int = 1) -> bool:
    return at.admit(request(id, tokens, output), tokens).admitted


def test_pages_are_mapped_as_tokens_come() -> None:
    """A request takes memory for its longest life at once, or maps a page twice."""
    at = layout()
    assert admit(at, 7, 13, 9)
    assert (at.take_journal(), at.held(7), at.free) == ([Mapped(0, 20)], 20, 40)
    assert at.append(7, 13).admitted and at.append(7, 7).admitted
    assert at.take_journal() == []
    assert at.append(7, 1).admitted
    assert (at.take_journal(), at.slots(7)) == ([Mapped(20, 10)], slice(0, 21))


def test_ranges_are_reused_lowest_first() -> None:
    """A range in the middle is never used again, so that the addresses run out."""
    at = layout()
    for id in (1, 2, 3):
        assert admit(at, id, 1)
    at.release(2)
    at.release(1)
    assert admit(at, 4, 1) and admit(at, 5, 1)
    starts = [int(at.table.array[at.table.row(id), 0]) for id in (4, 5, 3)]
    assert starts == [at.slots(id).start for id in (4, 5, 3)] == [0, 30, 60]


def test_released_pages_go_back_at_once() -> None:
    """Memory that nobody uses stays with a range, or its old tokens are seen again."""
    at = layout()
    assert admit(at, 1, 13) and admit(at, 2, 3)
    at.take_journal()
    at.release(1)
    assert (at.take_journal(), at.mapped_unused, at.free) == ([Unmapped(0, 20)], 0, 50)


def test_kept_pages_serve_the_next_request_of_the_range(deferred: VirtualLayout) -> None:
    """Deferred reclamation maps anew what is there, or does not count it as free."""
    assert admit(deferred, 1, 25)
    deferred.take_journal()
    deferred.release(1)
    assert (deferred.mapped_unused, deferred.free) == (3, 60)
    assert deferred.take_journal() == [Freed(0, 30)]
    assert admit(deferred, 2, 3, 20)
    assert (deferred.mapped_unused, deferred.held(2), deferred.free) == (2, 10, 50)
    assert deferred.append(2, 18).admitted
    assert (deferred.mapped_unused, deferred.take_journal()) == (1, [])


def test_kept_pages_are_taken_when_frames_run_short(deferred: VirtualLayout) -> None:
    """A request is refused for pages that nobody holds, or the range that was left last pays.

    Ranges 1, 2 and 0, left in this order, keep all six frames. The next request gets range 0 with
    its two pages, and a third one that is the last of range 1.
    """
    for id in (1, 2, 3):
        assert admit(deferred, id, 13)
    for id in (2, 3, 1):
        deferred.release(id)
    deferred.take_journal()
    assert admit(deferred, 4, 25)
    assert deferred.take_journal() == [Unmapped(40, 10), Mapped(20, 10)]
    assert (deferred.mapped_unused, deferred.free, deferred.mapped_pages) == (3, 30, 6)
    deferred.check()


def test_reconfigured_layout_gives_kept_pages_back(deferred: VirtualLayout) -> None:
    """`virtual.reclaim=immediate` leaves pages with their ranges for ever."""
    assert admit(deferred, 1, 13) and admit(deferred, 2, 13)
    deferred.release(1)
    deferred.take_journal()
    deferred.reconfigure(config({"virtual.reclaim": "immediate"}))
    assert (deferred.mapped_unused, deferred.take_journal()) == (0, [Unmapped(0, 20)])


@pytest.mark.parametrize("reclaim", ["immediate", "deferred"])
def test_refusals(reclaim: str) -> None:
    """Free memory is refused as fragmented, or a life longer than a range waits for ever."""
    at = layout({"virtual.reclaim": reclaim})
    for id, tokens in ((1, 13), (2, 13), (3, 1), (4, 1)):
        assert admit(at, id, tokens)
    assert at.question(request(9, 1, 1), 1) == Verdict(CAPACITY, 10, 0, 0)
    assert at.append(1, 20).admitted
    assert at.append(1, 9) == Verdict(CAPACITY, 10, 0, 0)
    at.release(2)
    assert at.question(request(9, 18, 1), 18).admitted
    assert at.question(request(9, 21, 1), 21) == Verdict(CAPACITY, 30, 20, 20)
    assert at.question(request(9, 21, 15), 21) == Verdict(NEVER, 40, 20, 20)
    assert admit(at, 9, 18)
    at.check()


def test_map_shows_frames() -> None:
    """The map shows addresses, or a page that nobody holds as taken."""
    at = VirtualLayout(config({"memory.slots": 66, "memory.context": 16}), PAGE // 8)
    assert at.admit(request(1, 10, 1), 10).admitted
    assert at.admit(request(2, 3, 1), 3).admitted
    at.append(1, 10)
    at.release(2)
    assert at.admit(request(3, 16, 1), 16).admitted
    at.append(3, 12)
    columns = at.columns()
    assert at.frames(1).tolist() + at.frames(3).tolist() == [0, 1, 2, 3]
    assert columns.owner.tolist() == [1, 1, 3, 3, *[HOLE] * 4, RESERVED]
    assert columns.used.tolist() == [8, 2, 8, 4, 0, 0, 0, 0, 0]
    assert columns.size.tolist() == [8] * 8 + [2]
    assert (at.free, at.grain, at.virtual_slots) == (32, 8, 8 * 16)


@pytest.mark.parametrize(("page_bytes", "slot_bytes", "expected"), [
    (1 << 16, 2048, 32), (1 << 21, 131_072, 16), (1 << 16, 819_200, 1), (1 << 17, 1536, 85),
])  # fmt: skip
def test_slots_in_a_page(page_bytes: int, slot_bytes: int, expected: int) -> None:
    """A page holds a part of a slot, or more slots than its bytes."""
    run = config({"virtual.page_bytes": page_bytes})
    assert VirtualLayout(run, slot_bytes).page_slots == expected


def test_pool_without_a_page_says_what_to_change() -> None:
    """Every request is refused for ever, and nobody says why."""
    run = config({"memory.slots": 512, "memory.context": 64, "virtual.page_bytes": 1 << 21})
    with pytest.raises(ConfigError, match=r"holds 1,024 slots, and the pool has 512\. Lower"):
        VirtualLayout(run, 2048)


@pytest.fixture(params=[SHAPE, SLICED], ids=["head-major", "slot-major"])
def kv_shape(request: pytest.FixtureRequest) -> ModelShape:
    return request.param


@pytest.fixture(params=[True, False], ids=["poison", "plain"])
def store(request: pytest.FixtureRequest, kv_shape: ModelShape) -> Iterator[VirtualStore]:
    """Eight pages of memory under the addresses of 64."""
    made = VirtualStore(kv_shape, 64 * 64, CPU, page_slots=64, pages=8, budget=PoolBudget(1 << 20),
                        poison=request.param)  # fmt: skip
    assert made.head_major == (kv_shape is SHAPE)
    yield made
    made.close()


def test_bookkeeping_and_the_kernel_agree(store: VirtualStore) -> None:
    """Pages that were given back still take memory, or mapped ones take none."""
    for journal, pages in (
        ([], 0),
        ([Mapped(0, 192), Mapped(4032, 64)], 4),
        ([Unmapped(64, 128)], 2),
        ([Unmapped(0, 64), Mapped(0, 64), Freed(0, 64), Mapped(640, 320)], 7),
    ):
        store.apply(journal)
        assert store.mapped_bytes == store.resident_bytes == pages * PAGE
    store.close()
    store.close()
    assert (store.nbytes, store.resident_bytes) == (0, 0)


def test_looking_at_the_map_takes_no_memory(store: VirtualStore) -> None:
    """The check commits the whole range."""
    store.apply([Mapped(128, 64)])
    store.written_map()
    assert store.view.isnan().sum() == (64 * SHAPE.slot_elements if store.poisons else 0)
    assert store.resident_bytes == PAGE


def test_stray_write_shows_in_the_kernel_s_count(store: VirtualStore) -> None:
    """A write beyond the mapped pages goes unseen."""
    store.apply([Mapped(128, 64)])
    store.view[1, 0, 777, 0] = 1.0
    assert store.resident_bytes == store.mapped_bytes + 4096


def test_page_that_comes_back_is_empty(store: VirtualStore) -> None:
    """A request reads the tokens of the one before."""
    store.apply([Mapped(0, 64)])
    store.view[:] = 3.0
    store.tag(np.arange(64), np.full(64, 5), np.arange(64))
    store.apply([Unmapped(0, 64), Mapped(0, 64)])
    fresh = store.view[:, :, :64]
    assert fresh.isnan().all() if store.poisons else not fresh.any()
    assert (store.tags[:64] == -1).all()


@pytest.mark.parametrize(("journal", "said"), [
    ([Mapped(0, 64), Mapped(0, 64)], "twice"),
    ([Unmapped(0, 64)], "is not mapped"),
    ([Mapped(3, 64)], "not whole pages"),
    ([Mapped(0, 63)], "not whole pages"),
])  # fmt: skip
def test_journal_that_can_t_be_is_an_assert(store: VirtualStore, journal: list, said: str) -> None:
    """Layout and store drift apart silently."""
    with pytest.raises(AssertionError, match=said):
        store.apply(journal)


def test_plain_store_knows_no_pages() -> None:
    """Pages of a store that has none are mapped silently."""
    plain = KVStore(SHAPE, 64, CPU, budget=PoolBudget(1 << 20), poison=False)
    with pytest.raises(AssertionError, match="a pool without pages"):
        plain.apply([Mapped(0, 64)])


def test_budget_pays_for_memory_and_not_for_addresses() -> None:
    """A lane is refused for addresses, which cost nothing, or takes memory unpaid."""
    at = VirtualLayout(config({"memory.slots": 1024, "memory.context": 512}), 1024)
    assert at.virtual_slots * 1024 == 8 << 20
    budget = PoolBudget(1 << 20)
    made = store_for(at, SHAPE, CPU, budget=budget, poison=True)
    assert (budget.used_bytes, made.nbytes) == (1 << 20, 1 << 20)
    with pytest.raises(CapacityError):
        store_for(at, SHAPE, CPU, budget=budget, poison=True)
    made.close()
    assert budget.used_bytes == 0


def test_other_device_is_refused() -> None:
    """Memory of a device is said to be mapped by the page when it is not."""
    budget = PoolBudget(1 << 20)
    with pytest.raises(KvvizError, match="on the CPU only, not on cuda"):
        VirtualStore(SHAPE, 64, torch.device("cuda"), page_slots=64, pages=1, budget=budget,
                     poison=False)  # fmt: skip
    assert budget.used_bytes == 0


@pytest.mark.parametrize("reclaim", ["immediate", "deferred"])
def test_lane_equals_the_paged_one(backend: Backend, reclaim: str) -> None:
    """Other tokens than paged, or a map that the tensors contradict while pages come and go.

    256 bytes a slot, 256 slots in a page: ten frames, ranges of two pages.
    """
    run = small({"memory.slots": 2560, "memory.context": 512, "mix.prompt_mean": 150,
                 "mix.output_mean": 60, "mix.long_prompt": 400, "virtual.reclaim": reclaim,
                 "engine.check_every": 5, "engine.token_budget": 256})  # fmt: skip
    with lanes(run, backend, ("paged", "virtual")) as built:
        run_steps(built, 260)
        lane = built.engines["virtual"]
        assert built.comparison.compared == built.comparison.equal >= 20
        assert lane.checks_made >= 50 and lane.checks_failed == 0
        refused = lane.scheduler.ledger.refused
        assert refused["capacity"] > 0 == refused["fragmented"]
        store = lane.forward.store
        assert store.resident_bytes == store.mapped_bytes == lane.layout.mapped_pages * PAGE


def test_keys_of_a_head_lie_side_by_side(store: VirtualStore) -> None:
    """The kernels read a request's keys in steps of a whole slot, four times as slowly as those
    of a contiguous pool."""
    planes = store.planes(1)
    assert planes.slot_step == (1 if store.head_major else store.shape.slot_elements // 8)
    store.apply([Mapped(64, 64)])
    store.view[1, 1, 70, 1] = 7.0
    row = planes.head_step + 70 * planes.slot_step
    assert (planes.v[row] == 7.0).all() and not (planes.k[row] == 7.0).any()
