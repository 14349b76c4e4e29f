"""What the page tells of a request, a hole and the events, against the lanes themselves."""

from __future__ import annotations

import numpy as np
import pytest

from kvviz.build import Backend, build_lanes
from kvviz.engine.orders import Orders
from kvviz.live import log
from kvviz.live.inspect import differences, hole_facts, request_facts
from kvviz.live.past import Past
from kvviz.records import HOLE, Event
from tests.helpers import small
from tests.live.support import dry


def made(changes: dict | None = None, steps: int = 120, backend: Backend | None = None):
    config = small(changes) if backend else dry({"mix.rate": 0.8, **(changes or {})})
    lanes = build_lanes(config, backend)
    past = Past(list(lanes.engines))
    for _ in range(steps):
        lanes.step()
        past.add(lanes)
    return lanes, past


def test_a_running_request_is_told_as_the_layout_has_it() -> None:
    """The drawing of blocks would show another order than the block table."""
    lanes, past = made()
    engine = lanes.engines["paged"]
    for sequence in engine.scheduler.running:
        request = sequence.request.id
        facts = request_facts(lanes, past, past.last, request)["paged"]
        assert (facts["state"], facts["written"], facts["order"]) == (
            "running",
            sequence.written,
            "token",
        )
        slots = engine.layout.slots(request)
        drawn = [slot + i for _, slot, size in facts["runs"] for i in range(size)]
        assert np.asarray(slots).tolist() == drawn
        assert all(slot // 16 == (slot + size - 1) // 16 for _, slot, size in facts["runs"])
        assert {"arrive", "admit"} <= {event["kind"] for event in facts["life"]}


def test_a_past_step_knows_nothing_of_later() -> None:
    """A request would be called finished before it is."""
    lanes, past = made()
    finished = [e for e in lanes.engines["paged"].recorder.events if e.kind == "finish"]
    event = finished[3]
    before = request_facts(lanes, past, event.step, event.request)["paged"]
    after = request_facts(lanes, past, event.step + 1, event.request)["paged"]
    assert (before["state"], after["state"]) == ("running", "finished")
    assert before["order"] == "token"
    shot = past.shots(event.step)["paged"]
    mine = shot.columns.owner == event.request
    assert shot.columns.start[mine].tolist() == sorted(slot for _, slot, _ in before["runs"])
    assert all(told["step"] <= event.step for told in before["life"])


def test_the_order_of_a_past_step_is_that_of_its_tokens() -> None:
    """The lines from tokens to blocks would cross, or not, by chance."""
    lanes, past = made(steps=60)
    engine, then = lanes.engines["paged"], lanes.step_count
    tables = {s.request.id: engine.layout.slots(s.request.id) for s in engine.scheduler.running}
    for _ in range(20):
        lanes.step()
        past.add(lanes)
    assert {s.request.id for s in engine.scheduler.running} != set(tables)
    crossed = 0
    for request, slots in tables.items():
        facts = request_facts(lanes, past, then, request)["paged"]
        drawn = [slot + i for _, slot, size in facts["runs"] for i in range(size)]
        assert (facts["order"], drawn) == ("token", slots.tolist())
        crossed += drawn != sorted(drawn)
    assert crossed


def test_without_its_table_a_request_is_told_by_addresses() -> None:
    """A made-up order would look like a true one."""
    lanes, past = made(steps=60)
    request = int(past.shots(30)["paged"].seq_id[0])
    past.orders = {name: Orders() for name in past.orders}
    facts = request_facts(lanes, past, 30, request)["paged"]
    starts = [slot for _, slot, _ in facts["runs"]]
    assert (facts["order"], starts) == ("address", sorted(starts))


def test_who_waits_and_who_is_unknown() -> None:
    lanes, past = made({"mix.rate": 2.0})
    waiting = lanes.engines["contiguous"].scheduler.waiting
    facts = request_facts(lanes, past, past.last, waiting[2].request.id)["contiguous"]
    assert (facts["state"], facts["place"]) == ("waiting", 3)
    assert request_facts(lanes, past, past.last, 10**6)["paged"]["state"] == "unknown"


def test_text_and_addresses_are_those_of_the_tensors(backend: Backend) -> None:
    """The panel would show made-up addresses or another request's text."""
    lanes, past = made(steps=60, backend=backend)
    try:
        engine = lanes.engines["contiguous"]
        request = engine.scheduler.running[0].request.id
        facts = request_facts(lanes, past, past.last, request)["contiguous"]
        view = engine.forward.store.view
        slot = engine.layout.slots(request).start
        assert hex(view[0, 0, slot].data_ptr()) == facts["tensor"]["addresses"][0]
        prompt, answer = engine.forward.text(request)
        assert prompt.decode("utf-8", "replace").startswith(facts["prompt_text"].removesuffix(" …"))
        assert answer.decode("utf-8", "replace") == facts["answer_text"]
        early = request_facts(lanes, past, past.last - 3, request)["contiguous"]
        assert "tensor" not in early
        assert len(early["answer_text"]) <= len(facts["answer_text"])
    finally:
        lanes.close()


@pytest.mark.parametrize("lane", ["contiguous", "paged"])
def test_a_hole_names_who_left_it(lane: str) -> None:
    """A hole would be blamed on a request that never lay there."""
    _, past = made()
    shot = past.shots(past.last)[lane]
    told = 0
    for row in np.flatnonzero(shot.columns.owner == HOLE):
        slot = int(shot.columns.start[row])
        facts = hole_facts(past, past.last, lane, slot)
        assert facts is not None
        assert facts["start"] <= slot < facts["start"] + facts["size"]
        if facts["left_by"] is None:
            continue
        told += 1
        before = past.shots(facts["left_at"] - 1)[lane]
        at = np.searchsorted(before.columns.start, slot, side="right") - 1
        assert before.columns.owner[at] == facts["left_by"]
    assert told > 0
    taken = int(shot.columns.start[np.flatnonzero(shot.columns.owner >= 0)[0]])
    assert hole_facts(past, past.last, lane, taken) is None


def test_the_log_is_filtered_and_says_why() -> None:
    """Rows would be missing, or a refusal stand there without its cause."""
    lanes, _ = made()
    every = [e for engine in lanes.engines.values() for e in engine.recorder.events]
    found = log.newest(lanes, log.Filter())
    assert (found["total"], len(found["rows"]), found["first"]) == (len(every), log.ROWS_SHOWN, 0)
    steps = [row[0] for row in found["rows"]]
    assert steps == sorted(steps, reverse=True)
    refused = log.newest(lanes, log.Filter("refuse", "fragmented"))
    wanted = [e for e in every if (e.kind, e.verdict) == ("refuse", "fragmented")]
    assert refused["total"] == len(wanted) > 0
    assert all("enough is free, but in pieces" in row[6] for row in refused["rows"])
    one = wanted[0].request
    assert {one} == {row[3] for row in log.newest(lanes, log.Filter(request=one))["rows"]}
    assert max(row[0] for row in log.newest(lanes, log.Filter(until=50))["rows"]) <= 50


def test_the_table_holds_every_event_once() -> None:
    lanes, _ = made(steps=60)
    every = [
        (name, event) for name, engine in lanes.engines.items() for event in engine.recorder.events
    ]
    rows = log.table(lanes)
    back = [(row[1], Event(row[0], row[2], row[3], *row[4:])) for row in rows]
    assert sorted(every) == sorted(back)
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)


def test_the_difference_of_two_moments() -> None:
    """Requests that came would be called gone."""
    _, past = made()
    found = differences(past, 60, 100)
    assert found["steps"] == [60, 100]
    for name, told in found["lanes"].items():
        a, b = past.shots(60)[name], past.shots(100)[name]
        old, new = set(a.seq_id.tolist()), set(b.seq_id.tolist())
        assert (told["came_count"], told["went_count"]) == (len(new - old), len(old - new))
        assert set(told["came"]) <= new - old
        assert told["free"] == [a.free, b.free]
    still = differences(past, 60, 60)["lanes"]["paged"]
    assert (still["came"], still["went"]) == ([], [])
