"""Continuous batching by hand: who is served, who waits, who gives way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.caches.layout import Journal
from kvviz.engine.engine import Engine
from kvviz.engine.forward import Chunk, DryForward
from kvviz.records import CAPACITY, FRAGMENTED, NEVER, QUEUED, Request, Verdict
from tests.helpers import engine, events, ids, request, run_steps
from tests.strategies import requests

SMALL = {"memory.slots": 64, "memory.context": 16, "engine.token_budget": 64}
BOTH = pytest.mark.parametrize("name", ["contiguous", "paged"])


class Spy(DryForward):
    """A dry forward that keeps every batch."""

    def __init__(self) -> None:
        self.batches: list[list[Chunk]] = []

    def __call__(self, batch: list[Chunk], journal: Journal) -> np.ndarray:
        self.batches.append(batch)
        return super().__call__(batch, journal)


def lane(name: str, changes: dict[str, Any] | None = None, spy: Spy | None = None) -> Engine:
    """64 slots; the paged lane has blocks of one slot unless told otherwise."""
    return engine(name, {**SMALL, "paged.block_size": 1, **(changes or {})}, spy)


def refusals(served: Engine) -> dict[int, str]:
    return {e.request: e.verdict for e in events(served, "refuse")}


def drain(served: Engine, limit: int = 2000) -> None:
    """Run until nothing is left; a livelock ends at the limit."""
    for _ in range(limit):
        if served.idle:
            return
        served.step()
    raise AssertionError(f"{served.outstanding} requests left after {limit} steps")


@BOTH
@pytest.mark.parametrize(("prompt", "output"), [(1, 1), (1, 2), (10, 1), (10, 7), (40, 25)])
def test_slots_at_finish(name: str, prompt: int, output: int) -> None:
    """The last token was written to the cache, or one before it was not: a finished request
    holds prompt + output - 1 slots."""
    served = lane(name)
    served.submit([request(0, prompt, output)])
    run_steps(served, output)
    assert [e.slots for e in events(served, "finish")] == [prompt + output - 1]
    assert (served.generated, served.finished, served.layout.free) == (output, 1, 64)


@BOTH
def test_prefill_in_chunks(name: str) -> None:
    """A prompt of 10 with 4 tokens a step: 4, 4, 2, and only the last chunk yields a token."""
    spy = Spy()
    served = lane(name, {"engine.token_budget": 4}, spy)
    served.submit([request(0, 10, 3)])
    run_steps(served, 5)
    assert [(c.start, c.length, c.samples) for batch in spy.batches for c in batch] == [
        (0, 4, False), (4, 4, False), (8, 2, True), (10, 1, True), (11, 1, True)]  # fmt: skip
    assert served.idle


@BOTH
def test_first_come_first_served(name: str) -> None:
    """A small request overtakes a large one that waits for memory."""
    served = lane(name, {"contiguous.reservation": "oracle"})
    served.submit([request(0, 40, 4), request(1, 40, 2), request(2, 2, 2)])
    served.step()
    assert (ids(served, "admit"), ids(served, "refuse")) == ([0], [1, 2])
    drain(served)
    assert ids(served, "admit") == [0, 1, 2]


def test_verdicts_of_a_blocked_queue() -> None:
    """The head lacks memory, the second would fit, the third does not fit either, the fourth
    never will: each is told so once, and what could have been served is 'queued'."""
    served = lane("contiguous")
    served.submit([request(0, 40, 9), request(1, 30, 1), request(2, 5, 1), request(3, 20, 1),
                   request(4, 60, 6)])  # fmt: skip
    run_steps(served, 5)
    assert refusals(served) == {1: CAPACITY, 2: QUEUED, 3: CAPACITY, 4: NEVER}
    assert len(events(served, "refuse")) == 4
    assert served.counters().refused == {NEVER: 1, CAPACITY: 2, FRAGMENTED: 0, QUEUED: 1}
    assert [w.request.id for w in served.scheduler.waiting] == [1, 2, 3]


def test_false_refusal_is_told_apart() -> None:
    """Of |0 x 20|1 x 20|2 x 20|..4| the first and the last leave: 44 slots are free, 20 and 24 in
    a row. One of 30 is refused though memory would do, and the paged lane serves it."""
    kinds = {}
    for name in ("contiguous", "paged"):
        served = lane(name)
        served.submit([request(0, 20, 1), request(1, 11, 10), request(2, 20, 1)])
        served.step()
        served.submit([request(3, 30, 1)])
        served.step()
        kinds[name] = refusals(served)
    assert kinds == {"contiguous": {3: FRAGMENTED}, "paged": {}}


@BOTH
def test_refuse_mode_drops_the_head_and_goes_on(name: str) -> None:
    """on_refusal = refuse still blocks those behind, or keeps what it refused."""
    served = lane(name, {"engine.queue": "refuse"})
    served.submit([request(0, 40, 4), request(1, 40, 2), request(2, 2, 2)])
    served.step()
    assert (ids(served, "admit"), ids(served, "drop")) == ([0, 2], [1])
    assert refusals(served) == {1: CAPACITY}
    assert (served.counters().dropped, served.scheduler.head) == (1, None)


@BOTH
@pytest.mark.parametrize("policy", ["strict", "refuse"])
def test_never_is_dropped_at_once_and_blocks_nobody(name: str, policy: str) -> None:
    """A request that can't ever fit holds up the queue for good."""
    served = lane(name, {"engine.queue": policy})
    served.submit([request(0, 60, 6), request(1, 5, 5)])
    served.step()
    assert (refusals(served), ids(served, "drop"), ids(served, "admit")) == ({0: NEVER}, [0], [1])


@BOTH
def test_full_queue_turns_away(name: str) -> None:
    """More wait than may, or the one turned away has no verdict. The third would fit (queued),
    the fourth lacks memory."""
    served = lane(name, {"engine.queue_limit": 2, "memory.context": 64})
    served.submit([request(0, 30, 1), request(1, 10, 1), request(2, 20, 1), request(3, 65, 1)])
    assert [w.request.id for w in served.scheduler.waiting] == [0, 1]
    served.step()
    assert refusals(served) == {2: QUEUED, 3: NEVER}
    assert {e.text for e in events(served, "drop")} == {"the queue is full"}
    assert served.counters().dropped == 2


@BOTH
def test_max_running(name: str) -> None:
    """More sequences run than may; those who wait for their turn are not refused by memory."""
    served = lane(name, {"engine.max_running": 2})
    served.submit([request(i, 2, 3) for i in range(4)])
    served.step()
    assert [len(served.scheduler.running), len(served.scheduler.waiting)] == [2, 2]
    drain(served)
    assert (ids(served, "refuse"), served.finished) == ([], 4)


@pytest.mark.parametrize("name", ["contiguous", "paged"])
def test_youngest_gives_way_and_is_computed_anew(name: str) -> None:
    """The oldest loses its work, the tokens generated before are lost or counted twice, or the
    recomputation is not told.

    64 slots, two requests of 10 + 40 - 1 = 49 slots: after 22 more tokens each, 32 + 32 slots
    are taken, and the younger one has to go.
    """
    spy = Spy()
    served = lane(name, {"contiguous.reservation": "exact", "memory.context": 64}, spy)
    served.submit([request(0, 10, 40), request(1, 10, 40)])
    drain(served)
    preempted = events(served, "preempt")
    assert preempted[0].request == 1
    assert served.counters().preempted == len(preempted)
    assert served.counters().recomputed == sum(e.slots for e in preempted)
    assert (served.generated, served.finished) == (80, 2)
    assert ids(served, "finish") == [0, 1]
    assert [e.slots for e in events(served, "finish")] == [49, 49]
    again = [c for batch in spy.batches for c in batch if c.request.id == 1 and c.start == 0]
    assert [c.length for c in again] == [10, preempted[-1].slots + 1]


def test_no_admission_in_a_step_that_preempts() -> None:
    """The slots of the victim go to a newcomer, and the victim never comes back."""
    served = lane("paged", {"memory.context": 64})
    served.submit([request(0, 10, 40), request(1, 10, 40)])
    while not served.scheduler.ledger.preempted:
        served.submit([])
        served.step()
    step = events(served, "preempt")[0].step
    assert [e for e in events(served, "admit") if e.step == step] == []
    assert served.scheduler.waiting[0].request.id == 1


def test_head_after_a_preemption_is_not_an_old_one() -> None:
    """Two run and a third of 40 waits at the head; the step that preempts puts the victim in
    front of it and asks nobody, so neither series nor snapshot may show the third's 40."""
    served = lane("paged", {"memory.context": 64})
    served.submit([request(0, 15, 40), request(1, 15, 40), request(2, 40, 2)])
    while not served.scheduler.ledger.preempted:
        served.step()
    assert served.scheduler.waiting[0].request.id == 1
    assert served.recorder.series().need[-2:].tolist() == [40, 0]
    assert served.snapshot().head is None


def test_everyone_behind_a_refused_head_is_judged() -> None:
    """Memory refuses the head, so each one behind it is refused too, and is told so once.

    Eight requests hold the eight blocks and a ninth is refused. When all of them need a second
    block, 0 to 3 preempt 7 to 4; then 4 is refused at the head, with 5, 6 and 7 behind it.
    """
    served = engine("paged", {"memory.slots": 64, "memory.context": 64, "paged.block_size": 8})
    served.submit([request(i, 8, 30) for i in range(9)])
    run_steps(served, 3)
    waiting = {w.request.id: w.first_refusal for w in served.scheduler.waiting}
    assert waiting == dict.fromkeys([4, 5, 6, 7, 8], CAPACITY)


@BOTH
def test_idle_pool_admits_next_step(name: str) -> None:
    """A head that fits waits although nothing else is there."""
    served = lane(name)
    run_steps(served, 3)
    served.submit([request(0, 64, 1)])
    served.step()
    assert [(e.request, e.step) for e in events(served, "admit")] == [(0, 3)]
    assert served.idle


@BOTH
@settings(max_examples=40)
@given(data=st.data())
def test_everything_that_fits_is_served(name: str, data: st.DataObject) -> None:
    """A request starves, is served twice, or generates another number of tokens than asked.

    Any requests, any reservation: after they drain, the pool is empty again, every finished one
    has generated its output, and no step took more tokens than the budget.
    """
    spy = Spy()
    served = lane(name, {
        "engine.token_budget": data.draw(st.sampled_from([1, 5, 64])),
        "engine.max_running": data.draw(st.sampled_from([1, 3, 64])),
        "contiguous.fit": data.draw(st.sampled_from(["first", "best", "worst", "next"])),
        "contiguous.reservation": data.draw(st.sampled_from(["oracle", "exact"])),
        "contiguous.compaction": data.draw(st.sampled_from(["off", "on_refusal"])),
        "paged.block_size": data.draw(st.sampled_from([1, 3, 8]))}, spy)  # fmt: skip
    asked: list[Request] = [data.draw(requests(i, 40)) for i in range(6)]
    served.submit(asked)
    drain(served)
    assert sorted(ids(served, "finish")) == list(range(6))
    assert served.generated == sum(r.output_len for r in asked)
    assert {e.request: e.slots for e in events(served, "finish")} == {r.id: r.life for r in asked}
    assert served.layout.fits(getattr(served.layout, "usable", 64))
    for batch in spy.batches:
        assert sum(c.length for c in batch) <= served.config.engine.token_budget
        assert all(c.length > 0 for c in batch)
    assert_tokens_in_order(spy, asked, served)


def assert_tokens_in_order(spy: Spy, asked: list[Request], served: Engine) -> None:
    """Each request's chunks follow each other; only after a preemption do they start anew."""
    restarts = len(events(served, "preempt")) + len(asked)
    at = dict.fromkeys((r.id for r in asked), 0)
    for batch in spy.batches:
        assert len({c.request.id for c in batch}) == len(batch)
        for chunk in batch:
            restarts -= chunk.start == 0
            assert chunk.start in (0, at[chunk.request.id])
            at[chunk.request.id] = chunk.start + chunk.length
    assert at == {r.id: r.life for r in asked}
    assert restarts >= 0


def test_admission_verdict_is_recorded_with_its_numbers() -> None:
    """The event log shows other numbers than those that decided."""
    served = lane("contiguous", {"contiguous.compaction": "on_refusal"})
    served.submit([request(0, 20, 2), request(1, 10, 9)])
    run_steps(served, 3)
    served.submit([request(3, 30, 1)])
    served.step()
    admitted, moved = events(served, "admit")[-1], events(served, "move")[-1]
    numbers = admitted.verdict, admitted.need, admitted.free, admitted.largest
    assert numbers == ("admitted", 30, 46, 25)
    assert (moved.request, moved.slots, served.counters().slots_moved) == (3, 13, 13)


def test_snapshot_shows_the_queue_and_the_running() -> None:
    """Columns of the snapshot are in another order than their names say."""
    served = lane("contiguous")
    served.submit([request(0, 10, 6), request(1, 20, 5), request(2, 40, 3), request(3, 1, 2)])
    run_steps(served, 2)
    shot = served.snapshot()
    shot.check()
    assert (shot.step, shot.free, shot.admissible, shot.capacity) == (2, 25, 25, 64)
    assert shot.seq_id.tolist() == [0, 1]
    assert shot.seq_used.tolist() == [11, 21]
    assert shot.seq_life.tolist() == shot.seq_held.tolist() == [15, 24]
    assert (shot.seq_prompt.tolist(), shot.seq_since.tolist()) == ([10, 20], [0, 0])
    assert (shot.waiting_id.tolist(), shot.waiting_need.tolist()) == ([2, 3], [42, 2])
    assert shot.head == Verdict(CAPACITY, 42, 25, 25)
    counters = shot.counters
    assert (counters.arrived, counters.running, counters.waiting, counters.generated) == (
        4,
        2,
        2,
        4,
    )
    assert (counters.refusals, counters.false_refusals) == (2, 0)
