"""Who passes, who gives way, and what becomes of them: by hand, and whether all get through."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.caches.layout import Journal
from kvviz.config import ADMISSIONS, PREEMPTIONS, QUEUES, VICTIMS
from kvviz.engine.engine import Engine
from kvviz.engine.forward import Chunk, DryForward
from kvviz.engine.sequence import Sequence
from kvviz.engine.victims import CHOICES
from kvviz.records import (
    CAPACITY,
    FRAGMENTED,
    QUEUED,
    SIBLINGS,
    FreedBlocks,
    Request,
    SwappedIn,
    SwappedOut,
    Verdict,
)
from tests.helpers import engine, events, ids, request, run_steps
from tests.strategies import requests

BOTH = pytest.mark.parametrize("name", ["contiguous", "paged"])


class Spy(DryForward):
    """A dry forward that keeps every journal and batch."""

    def __init__(self) -> None:
        self.journal: Journal = []
        self.batches: list[list[Chunk]] = []

    def __call__(self, batch: list[Chunk], journal: Journal) -> np.ndarray:
        self.journal += journal
        self.batches.append(batch)
        return super().__call__(batch, journal)


def lane(name: str, slots: int, changes: dict[str, Any], spy: Spy | None = None) -> Engine:
    """Blocks of one slot unless told otherwise; the contiguous lane grows with its tokens."""
    return engine(
        name,
        {
            "memory.slots": slots,
            "memory.context": 16,
            "paged.block_size": 1,
            "contiguous.reservation": "exact",
            "engine.token_budget": 256,
            **changes,
        },
        spy,
    )


def drain(served: Engine, limit: int = 3000) -> None:
    for _ in range(limit):
        if served.idle:
            return
        served.step()
    raise AssertionError(f"{served.outstanding} requests left after {limit} steps")


def finished_at(served: Engine) -> dict[int, int]:
    """Steps served when each request was done."""
    return {e.request: e.step + 1 for e in events(served, "finish")}


@pytest.mark.parametrize(
    ("queue", "done", "bypassed"),
    [("strict", {0: 40, 1: 50, 2: 45}, 0), ("skip", {0: 40, 1: 50, 2: 5}, 1)],
)
def test_head_of_line(queue: str, done: dict[int, int], bypassed: int) -> None:
    """A pool of 100: 60 + 40 run, then 50 + 10 wait at the head, with 10 + 5 behind them that
    would fit. Strict: all wait for step 40. Skipping ahead serves the small one at once, and
    nobody is later for it."""
    served = lane("paged", 100, {"engine.queue": queue})
    served.submit([request(0, 60, 40), request(1, 50, 10), request(2, 10, 5)])
    served.step()
    first = {e.request: e.verdict for e in events(served, "refuse")}
    assert first == ({1: CAPACITY, 2: QUEUED} if queue == "strict" else {1: CAPACITY})
    drain(served)
    assert finished_at(served) == done
    assert served.counters().bypassed == bypassed


def admitted_at(served: Engine, request_id: int) -> int:
    return next(e.step for e in events(served, "admit") if e.request == request_id)


def test_a_waiting_head_takes_a_hole_that_compaction_makes() -> None:
    """32 of 64 slots between two holes of 16: the head needs 24. With a credit of 4 slots a step
    the region (22 slots written by then) moves in a while, and nobody has left since."""
    served = lane("contiguous", 64, {"contiguous.compaction": "steady",
                                     "contiguous.compact_slots": 4,
                                     "contiguous.reservation": "oracle"})  # fmt: skip
    served.submit([request(0, 15, 2), request(1, 20, 13)])
    run_steps(served, 2)
    served.submit([request(2, 20, 5)])
    drain(served)
    assert [e.verdict for e in events(served, "refuse")] == [FRAGMENTED]
    assert finished_at(served)[0] < admitted_at(served, 2) < finished_at(served)[1]


def test_a_waiting_head_takes_a_prefix_that_is_computed_meanwhile() -> None:
    """64 slots, prompts of 32 and of 56 that begins with those 32, in chunks of 16: 24 slots are
    free and needed once the first prompt is there, in step 2."""
    served = lane("paged", 64, {"paged.block_size": 8, "paged.prefix_sharing": True,
                                "engine.chunk": 16})  # fmt: skip
    first, second = request(0, 32, 8), request(1, 56, 1)
    shared = ((7, 32),)
    served.submit([replace(first, shared=shared), replace(second, shared=shared)])
    drain(served)
    assert [(e.request, e.verdict) for e in events(served, "refuse")] == [(1, CAPACITY)]
    assert admitted_at(served, 1) == 2


def test_a_waiting_head_that_wants_less_now_is_asked_for() -> None:
    """30 of 64 slots are free; the head will need 20 + 20 - 1, or 20 when it ends at once."""
    served = lane("contiguous", 64, {"contiguous.reservation": "oracle"})
    served.submit([request(0, 20, 15), request(1, 20, 20)])
    run_steps(served, 3)
    assert served.shorten(1)
    served.step()
    assert admitted_at(served, 1) == 3


def test_a_waiting_head_takes_what_a_setting_gives() -> None:
    """44 of 64 blocks are free, and a watermark of half the pool keeps 32 of them: 20 find no
    place until it is lowered."""
    served = lane("paged", 64, {"paged.watermark": 0.5})
    served.submit([request(0, 20, 30), request(1, 20, 1)])
    run_steps(served, 3)
    served.reconfigure(served.config.replace({"paged.watermark": 0.0}))
    served.step()
    assert admitted_at(served, 1) == 3


def test_skipping_ahead_shows_the_head() -> None:
    """Several pass; the verdict that is shown is that of the head, not of the last one asked."""
    served = lane("paged", 64, {"engine.queue": "skip"})
    served.submit([request(0, 40, 9), request(1, 30, 1), request(2, 9, 9), request(3, 28, 1),
                   request(4, 5, 9)])  # fmt: skip
    served.step()
    assert ids(served, "admit") == [0, 2, 4]
    assert served.counters().bypassed == 2
    assert served.scheduler.head is not None and served.scheduler.head.need == 30
    assert [w.request.id for w in served.scheduler.waiting] == [1, 3]


def running(*priorities: int) -> list[Sequence]:
    return [
        Sequence(replace(request(i, 5, 5), priority=priority), 0)
        for i, priority in enumerate(priorities)
    ]


@pytest.mark.parametrize(("victim", "chosen"), [("youngest", 4), ("oldest", 0), ("priority", 3)])
def test_who_is_chosen(victim: str, chosen: int) -> None:
    """By priority it is the youngest of the lowest one."""
    assert CHOICES[victim](running(1, 0, 2, 0, 1)).request.id == chosen


@pytest.mark.parametrize(("victim", "gone"), [("youngest", 2), ("oldest", 0), ("priority", 1)])
@BOTH
def test_who_gives_way(name: str, victim: str, gone: int) -> None:
    """Three fill the pool of 64; each wants one more."""
    served = lane(name, 64, {"engine.victim": victim})
    asked = zip((20, 20, 24), (1, 0, 1), strict=True)
    served.submit([replace(request(i, n, 8), priority=p) for i, (n, p) in enumerate(asked)])
    run_steps(served, 2)
    assert ids(served, "preempt")[0] == gone
    drain(served)
    assert served.finished == 3


def test_swap_falls_back_to_recompute() -> None:
    """Ten blocks of 7, and four in host memory. Three run with 4 + 3 + 3 full blocks; at the next
    token the youngest leaves its 3 to the host (1 is left there), the others grow to 5 and 4.
    At the next block boundary two are needed and one is free: the second's 4 find no room in
    the host, so it is computed anew instead of waiting for ever."""
    spy = Spy()
    changes = {"paged.block_size": 7, "engine.preemption": "swap", "engine.swap_slots": 28}
    served = lane("paged", 70, changes, spy)
    served.submit([request(0, 28, 20), request(1, 21, 20), request(2, 21, 20)])
    served.step()
    held = [served.layout.held(r) // 7 for r in (0, 1, 2)]
    assert (held, served.layout.free) == ([4, 3, 3], 0)
    served.step()
    assert [served.layout.held(r) // 7 for r in (0, 1)] == [5, 4]
    assert (served.scheduler.host.free, served.layout.free) == (7, 7)
    assert [(e.request, e.slots) for e in events(served, "swap_out")] == [(2, 21)]
    run_steps(served, 6)
    assert ids(served, "preempt") == [2]
    served.step()
    assert [(e.request, e.slots) for e in events(served, "preempt")] == [(2, 21), (1, 28)]
    assert ids(served, "swap_out") == [2]
    assert (served.counters().swapped, served.counters().recomputed) == (21, 28)
    drain(served)
    assert served.finished == 3
    assert served.scheduler.host.free == 28
    assert copied(spy, SwappedOut) == copied(spy, SwappedIn)


def copied(spy: Spy, kind: type) -> list[int]:
    """Requests of the swaps of one direction."""
    return sorted(entry.request for entry in spy.journal if isinstance(entry, kind))


@BOTH
def test_nothing_is_recomputed_when_all_swaps_fit(name: str) -> None:
    """The victim's tokens are written once, and copied out and back."""
    spy = Spy()
    served = lane(name, 64, {"engine.preemption": "swap", "memory.context": 64}, spy)
    served.submit([request(0, 10, 40), request(1, 10, 40)])
    drain(served)
    counters = served.counters()
    assert counters.preempted == len(events(served, "swap_out")) > 0
    assert (counters.recomputed, served.finished) == (0, 2)
    assert counters.swapped == 2 * sum(e.slots for e in events(served, "swap_out"))
    written = sum(chunk.length for batch in spy.batches for chunk in batch)
    assert written == 2 * 49


def test_swap_copies_what_is_written_before_it_is_freed() -> None:
    """The journal says: copy to the host, then free; the token of this very step is not there."""
    spy = Spy()
    served = lane("paged", 64, {"engine.preemption": "swap"}, spy)
    served.submit([request(i, n, 8) for i, n in enumerate((20, 20, 24))])
    run_steps(served, 2)
    (out,) = [e for e in spy.journal if isinstance(e, SwappedOut)]
    assert (out.request, len(out.slots)) == (2, 24)
    assert [type(entry) for entry in spy.journal] == [SwappedOut, FreedBlocks]
    freed = spy.journal[1]
    assert (freed.size, set(freed.ids.tolist())) == (1, set(out.slots.tolist()))


def test_swap_that_memory_still_holds_is_taken_from_there() -> None:
    """All of the victim's full blocks are still cached when it comes back: nothing is copied, and
    the host's copy must be dropped all the same, or it stays there for ever."""
    spy = Spy()
    changes = {"paged.block_size": 16, "paged.prefix_sharing": True, "engine.preemption": "swap"}
    served = lane("paged", 64, changes, spy)
    served.submit([request(0, 16, 10), request(1, 32, 9)])
    drain(served)
    assert copied(spy, SwappedOut) == copied(spy, SwappedIn) == [1]
    assert served.counters().swapped == 32
    assert served.scheduler.host.free == served.scheduler.host.capacity


@pytest.mark.parametrize(("sharing", "recomputed"), [(False, 30), (True, 6)])
def test_what_is_found_again_is_not_recomputed(sharing: bool, recomputed: int) -> None:
    """Eight blocks of 8, four for each of two. When the older writes its 33rd token, the younger
    leaves with 30 written and 31 known. It comes back to three full blocks that are still there:
    tokens 0 to 23 are found, 24 to 29 computed a second time, and 30 for the first."""
    spy = Spy()
    changes = {"paged.block_size": 8, "paged.prefix_sharing": sharing}
    served = lane("paged", 64, changes, spy)
    served.submit([request(0, 27, 8), request(1, 25, 8)])
    drain(served)
    assert [(e.request, e.slots) for e in events(served, "preempt")] == [(1, 30)]
    assert served.counters().recomputed == recomputed
    written = sum(chunk.length for batch in spy.batches for chunk in batch)
    assert written == (27 + 8 - 1) + (25 + 8 - 1) + recomputed


def test_samples_start_from_the_parents_slots() -> None:
    """The prompt is written once for all four, and each answers with its own tokens."""
    spy = Spy()
    served = lane("paged", 512, {"paged.block_size": 16}, spy)
    served.submit([replace(request(0, 40, 5), samples=4)])
    served.step()
    children = [n * SIBLINGS for n in (1, 2, 3)]
    assert [(e.request, e.slots) for e in events(served, "fork")] == [(c, 40) for c in children]
    assert [s.request.id for s in served.scheduler.running] == [0, *children]
    assert served.generated == 4
    drain(served)
    assert [[(c.start, c.length, c.samples) for c in batch] for batch in spy.batches][:2] == [
        [(0, 40, 4)], [(40, 1, 1)] * 4]  # fmt: skip
    assert (served.finished, served.generated, served.counters().copied) == (4, 20, 3 * 8)


@pytest.mark.parametrize(("name", "changes"), [("cells", {}), ("paged", {"engine.max_running": 2})])
def test_samples_without_room_compute_the_prompt(name: str, changes: dict[str, Any]) -> None:
    """No fork in this layout, or no turn: they wait at the head, before others, and are served."""
    spy = Spy()
    served = lane(name, 512, changes, spy)
    served.submit([replace(request(0, 40, 5), samples=3)])
    served.step()
    served.submit([request(1, 40, 5)])
    forked = ids(served, "fork")
    assert len(forked) == (name == "paged")
    left = [n * SIBLINGS for n in (1, 2) if n * SIBLINGS not in forked]
    assert [w.request.id for w in served.scheduler.waiting] == [*left, 1]
    drain(served)
    prompts = [c.request.id for batch in spy.batches for c in batch if c.start == 0]
    assert prompts == [0, *left, 1]
    assert (served.finished, served.generated) == (4, 20)


def test_chunk_admission_thrashes() -> None:
    """Four of 100 + 40 in a pool of 604, then 250 + 10 in chunks of 16. Admitted by its first
    chunk, the last is thrown out again and again; its whole prompt asked for, once, and then it
    starts when the four have left, a step later."""
    found = {}
    for admission in ("chunk", "prompt"):
        changes = {"paged.admission": admission, "engine.chunk": 16, "engine.max_running": 16}
        served = lane("paged", 604, changes)
        served.submit([request(i, 100, 40) for i in range(4)] + [request(4, 250, 10)])
        drain(served)
        counters = served.counters()
        found[admission] = (counters.preempted, counters.recomputed, finished_at(served)[4])
    assert found == {"chunk": (6, 624, 70), "prompt": (1, 176, 71)}


POLICIES = st.fixed_dictionaries(
    {
        "engine.queue": st.sampled_from([q for q in QUEUES if q != "refuse"]),
        "engine.victim": st.sampled_from(VICTIMS),
        "engine.preemption": st.sampled_from(PREEMPTIONS),
        "engine.swap_slots": st.sampled_from([0, 20, 4096]),
        "engine.chunk": st.sampled_from([0, 3]),
        "engine.max_running": st.sampled_from([2, 32]),
        "contiguous.compaction": st.sampled_from(["off", "on_refusal"]),
        "contiguous.reservation": st.sampled_from(["exact", "oracle"]),
        "paged.admission": st.sampled_from(ADMISSIONS),
        "paged.block_size": st.sampled_from([1, 4]),
        "paged.watermark": st.sampled_from([0.0, 0.3]),
        "paged.prefix_sharing": st.booleans(),
        "paged.null_block": st.booleans(),
    }
).filter(lambda c: (c["engine.victim"], c["paged.admission"]) != ("oldest", "chunk"))
"""Without the pair that can go round for ever: whoever is in the middle of its prompt is the oldest
sooner or later, and the chunk gate lets it in again before there is room for the rest."""


@st.composite
def crowds(draw: st.DrawFn) -> list[Request]:
    """Requests that fit alone, some in samples, some urgent, some with a prefix in common."""
    found = []
    for number in range(draw(st.integers(2, 8))):
        asked = draw(requests(number, 40))
        found.append(
            replace(
                asked,
                samples=draw(st.sampled_from([1, 1, 3])),
                priority=draw(st.integers(0, 1)),
                shared=((0, 6),) if asked.prompt_len > 6 and draw(st.booleans()) else (),
            )
        )
    return found


@BOTH
@settings(max_examples=60)
@given(changes=POLICIES, crowd=crowds())
def test_all_get_through(name: str, changes: dict[str, Any], crowd: list[Request]) -> None:
    """A closed run ends, whatever the policies; and whenever nothing runs, a head that fits is
    admitted at the next step."""
    served = lane(name, 64, changes)
    served.submit(crowd)
    limit = 40 * served.outstanding * 3 + 400
    while not served.idle and served.step_count < limit:
        waiting, idle = served.scheduler.waiting, not served.scheduler.running
        head = waiting[0] if waiting and idle else None
        fits = head and served.layout.question(head.request, head.tokens).admitted
        step = served.step_count
        served.step()
        if fits:
            assert head.admitted == step or step in [e.step for e in events(served, "preempt")]
        assert not idle or head is None or fits
    assert served.idle, f"{served.outstanding} left after {limit} steps"
    assert served.finished == sum(r.samples for r in crowd)
    assert served.layout.free == getattr(served.layout, "usable", 64)
    assert served.scheduler.host.free == served.scheduler.host.capacity
    assert served.counters().dropped == 0


@settings(max_examples=80)
@given(changes=POLICIES, crowd=crowds(), watermark=st.sampled_from([0.0, 0.3]))
def test_who_reserves_its_limit_never_gives_way(
    changes: dict[str, Any], crowd: list[Request], watermark: float
) -> None:
    """With admission by limit a sample finds no block for the copy of the prompt's last one, or
    for its output, and somebody is preempted who was promised everything."""
    served = lane(
        "paged", 64, {**changes, "paged.admission": "limit", "paged.watermark": watermark}
    )
    served.submit(crowd)
    while not served.idle:
        assert served.step_count < 4000, f"{served.outstanding} requests are left"
        served.step()
        served.layout.check()
        assert not served.scheduler.ledger.preempted
    assert served.finished == sum(r.samples for r in crowd if r.id not in ids(served, "drop"))
    assert served.layout.free == served.layout.usable


@settings(max_examples=60)
@given(changes=POLICIES, crowd=crowds())
def test_what_is_written_twice_is_counted_as_recomputed(
    changes: dict[str, Any], crowd: list[Request]
) -> None:
    """Tokens of the batches beyond those that the requests need once are those computed again;
    what is found in memory, or copied from the host, is in no batch."""
    spy = Spy()
    served = lane("paged", 64, changes, spy)
    served.submit([replace(r, samples=1, shared=()) for r in crowd])
    drain(served)
    written = sum(chunk.length for batch in spy.batches for chunk in batch)
    assert written == sum(r.life for r in crowd) + served.counters().recomputed


def test_a_swapped_head_asks_for_all_that_comes_back() -> None:
    """64 slots, two of 10 + 40 - 1. With 32 each the younger leaves with 33 known; a step later the
    older holds 34 of 64. The younger's first chunk of 3 would fit in the 30 that are free, but it
    must come back whole: the page says capacity, as the scheduler does."""
    changes = {"engine.preemption": "swap", "engine.chunk": 3, "paged.admission": "chunk"}
    served = lane("paged", 64, {**changes, "memory.context": 64})
    served.submit([request(0, 10, 40), request(1, 10, 40)])
    while not served.scheduler.ledger.preempted:
        served.step()
    served.step()
    head = served.scheduler.waiting[0]
    assert (head.request.id, head.swapped, head.tokens) == (1, 32, 33)
    assert served.layout.question(head.request, head.tokens).admitted
    assert served.snapshot().head == Verdict(CAPACITY, 33, 30, 30)
    drain(served)
    assert served.finished == 2


@BOTH
@settings(max_examples=60)
@given(changes=POLICIES, crowd=crowds())
def test_the_verdict_shown_is_the_one_the_head_would_get(
    name: str, changes: dict[str, Any], crowd: list[Request]
) -> None:
    """The page shows a head as admitted that waits, or as refused that would get its slots."""
    served = lane(name, 64, changes)
    served.submit(crowd)
    while not served.idle and served.step_count < 400:
        served.step()
        shown = served.snapshot().head
        if shown is None:
            continue
        other = deepcopy(served.scheduler)
        verdict, _ = other._enter(other.waiting[0], 256)
        assert (shown.kind, shown.need) == (verdict.kind, verdict.need)
