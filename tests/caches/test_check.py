"""A planted corruption of the tensors is found by the map's check, on every layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from kvviz.build import Backend
from kvviz.caches.store import KVStore, tags
from kvviz.engine.engine import Engine
from tests.helpers import indices, lanes, place, run_steps, small

NAN = float("nan")


@pytest.fixture(params=["contiguous", "paged", "cells", "virtual"])
def lane(request: pytest.FixtureRequest, backend: Backend) -> Iterator[Engine]:
    """A lane in the middle of its work, with at least two requests of some tokens."""
    with lanes(small({"engine.check_every": 1}), backend, (request.param,)) as built:
        run_steps(built, 40)
        engine = built.engines[request.param]
        assert len(live(engine)) >= 2 and engine.checks_failed == 0 < engine.checks_made
        yield engine


def live(engine: Engine) -> list[np.ndarray]:
    """Slots of each running request, the longest first."""
    slots = [indices(engine.layout, s.request.id) for s in engine.scheduler.running]
    return sorted(slots, key=len, reverse=True)


def lose_a_slot(pool: KVStore, mine: np.ndarray, _other: np.ndarray) -> None:
    pool.view[:, :, mine[3]] = NAN


def lose_a_number(pool: KVStore, mine: np.ndarray, _other: np.ndarray) -> None:
    pool.view[-1, 1, mine[3], 0, 0] = NAN


def swap_tags(pool: KVStore, mine: np.ndarray, other: np.ndarray) -> None:
    pool.tags[[mine[2], other[0]]] = pool.tags[[other[0], mine[2]]]


def swap_tags_of_one_request(pool: KVStore, mine: np.ndarray, _other: np.ndarray) -> None:
    pool.tags[[mine[1], mine[2]]] = pool.tags[[mine[2], mine[1]]]


def overwrite_whole(pool: KVStore, mine: np.ndarray, other: np.ndarray) -> None:
    pool.view[:, :, mine[2]] = pool.view[:, :, other[0]].clone()
    pool.tags[mine[2]] = pool.tags[other[0]]


def overwrite_keys_only(pool: KVStore, mine: np.ndarray, other: np.ndarray) -> None:
    pool.view[:, :, mine[2]] = pool.view[:, :, other[0]].clone()


def shift_by_one(pool: KVStore, mine: np.ndarray, _other: np.ndarray) -> None:
    pool.view[:, :, mine[1]] = pool.view[:, :, mine[2]].clone()


def write_to_a_free_slot(pool: KVStore, mine: np.ndarray, _other: np.ndarray) -> None:
    free = int(np.flatnonzero(pool.written_map() < 0)[0])
    pool.view[:, :, free] = pool.view[:, :, mine[0]].clone()
    pool.tags[free] = tags(77, np.array(0))


@pytest.mark.parametrize(
    "corrupt",
    [
        lose_a_slot,
        lose_a_number,
        swap_tags,
        swap_tags_of_one_request,
        overwrite_whole,
        overwrite_keys_only,
        shift_by_one,
        write_to_a_free_slot,
    ],
)
def test_corruption_is_found(lane: Engine, corrupt: Callable[..., None]) -> None:
    """The page says that map and tensors agree when they do not."""
    mine, other, *_ = live(lane)
    lane.check_map()
    assert lane.checks_failed == 0
    corrupt(lane.forward.store, mine, other)
    assert lane.forward.check() is False
    lane.check_map()
    assert lane.checks_failed == 1


def test_address_of_another_request_is_found(lane: Engine) -> None:
    """The table sends a request to slots that are not its own."""
    mine, _ = sorted(lane.scheduler.running, key=lambda s: -s.written)[:2]
    line = lane.layout.table.row(mine.request.id)
    lane.layout.table.array[line, 0] += lane.layout.grain
    with pytest.raises(AssertionError):
        lane.layout.check()
        assert lane.forward.check()


def test_slots_that_were_never_written_are_found(lane: Engine) -> None:
    """The bookkeeping promises tokens that no forward ever wrote."""
    sequence = max(lane.scheduler.running, key=lambda s: s.request.life - s.written)
    lane.layout.append(sequence.request.id, 1)
    place(lane.layout)
    assert lane.forward.check() is False


def test_check_without_poison_says_what_to_set(backend: Backend) -> None:
    """The check passes for a pool in which a stray read can't be seen."""
    with lanes(small({"engine.check_every": 0}), backend) as built:
        run_steps(built, 3)
        with pytest.raises(ValueError, match="set engine.check_every above 0"):
            built.check_maps()
