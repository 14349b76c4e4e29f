"""The verdict sentence."""

from __future__ import annotations

from kvviz.records import ADMITTED, CAPACITY, FRAGMENTED, HOLE, Counters, Event, Verdict
from kvviz.views.words import verdict
from tests.helpers import events, lanes
from tests.live.support import dry
from tests.views.made import lanes_after, snapshot

NOBODY = {"contiguous": None, "paged": None}
TORN = [(900, 900, 1), (1500, 0, HOLE), (900, 900, 2), (1200, 0, HOLE)]
FULL = [(4400, 4300, 1), (100, 0, HOLE)]
PAGES = [(16, 16, 1), (16, 0, HOLE), (16, 16, 7), (16, 0, HOLE)]
OTHERS = [(16, 16, 1), (16, 0, HOLE), (16, 16, 2), (16, 0, HOLE)]
REFUSED = Verdict(FRAGMENTED, 2100, 2700, 1500)


def test_a_false_refusal():
    """The page would not say that there is enough free memory, or with wrong numbers."""
    told = verdict(
        {
            "contiguous": snapshot(TORN, head=REFUSED, waiting=[(7, 2100)]),
            "paged": snapshot(PAGES, grain=16, since={7: 1234}),
        },
        NOBODY,
    )
    assert told.tone == "alarm"
    assert (
        told.text
        == "Contiguous refuses request 7: it needs 2,100 slots; 2,700 are free, but the largest "
        "hole is 1,500. Fragmented."
    )
    assert told.detail == "Paged admitted it at step 1,235."  # whose picture shows it


def test_a_lack_of_memory():
    """Too little memory would be called fragmentation."""
    head = Verdict(CAPACITY, 2100, 100, 100)
    told = verdict(
        {
            "contiguous": snapshot(FULL, head=head, waiting=[(7, 2100)]),
            "paged": snapshot(OTHERS, grain=16, waiting=[(7, 2112)]),
        },
        NOBODY,
    )
    assert told.tone == "tight"
    assert (
        told.text == "Contiguous lets request 7 wait: it needs 2,100 slots and only 100 are free. "
        "Capacity, not fragmentation."
    )
    assert told.detail == "In paged it waits too: 32 slots are free."


def test_a_false_refusal_is_told_before_a_lack_of_memory():
    """The lane named first would hide the one thing that the page is about."""
    head = Verdict(CAPACITY, 48, 32, 32)
    told = verdict(
        {
            "paged": snapshot(PAGES, grain=16, head=head, waiting=[(7, 48)]),
            "contiguous": snapshot(TORN, head=REFUSED, waiting=[(7, 2100)]),
        },
        NOBODY,
    )
    assert told.tone == "alarm"


def test_a_head_that_just_got_room():
    """The sentence would say refused, and the map would show room for it."""
    head = Verdict(ADMITTED, 1200, 2700, 1500)
    told = verdict(
        {
            "contiguous": snapshot(TORN, head=head, waiting=[(7, 1200)]),
            "paged": snapshot(PAGES[:2], grain=16, counters=Counters(arrived=9)),
        },
        NOBODY,
    )
    assert told.tone == "calm"
    assert told.text.startswith("Contiguous has just made room for request 7: 1,200 slots.")
    assert told.detail == "Paged has served it already."


def test_an_empty_run_says_so():
    """Nothing has arrived, and the page would speak of requests that have their place."""
    empty = [(4500, 0, HOLE)]
    shots = {"contiguous": snapshot(empty), "paged": snapshot(empty, grain=16)}
    told = verdict(shots, NOBODY)
    assert (told.tone, told.text) == ("calm", "No request has arrived yet: all slots are free.")


def test_nothing_waits():
    """A calm run would ring an alarm."""
    shots = {"contiguous": snapshot(TORN), "paged": snapshot(PAGES, grain=16)}
    told = verdict(shots, NOBODY)
    assert (told.tone, told.text) == ("calm", "Every request that arrived has its place.")
    assert told.detail == "No request has been refused in spite of enough free memory."


def test_a_calm_run_remembers_the_last_false_refusal():
    """One would look up too late and never know."""
    event = Event(4321, "refuse", 7, FRAGMENTED, 2100, 2700, 1500)
    shots = {"contiguous": snapshot(TORN), "paged": snapshot(PAGES, grain=16)}
    assert (
        verdict(shots, {"contiguous": event, "paged": None}).detail
        == "Last false refusal in contiguous: request 7 at step 4,322, needed 2,100 with "
        "2,700 free, largest hole 1,500."
    )


def test_a_request_that_did_not_arrive_is_not_called_served():
    """In a closed loop the other lane may be behind: it has not seen the request yet."""
    told = verdict(
        {
            "contiguous": snapshot(TORN, head=REFUSED, waiting=[(7, 2100)]),
            "paged": snapshot(PAGES[:2], grain=16, counters=Counters(arrived=7)),
        },
        NOBODY,
    )
    assert "served" not in told.detail


def test_a_request_that_was_turned_away_is_not_called_served():
    """The page would praise a lane for what it refused."""
    changes = {"engine.queue_limit": 3, "mix.rate": 1.5, "mix.long_share": 0.3}
    with lanes(dry(changes)) as built:
        for _ in range(400):
            built.step()
            shots = {name: engine.snapshot() for name, engine in built.engines.items()}
            told = verdict(shots, NOBODY)
            dropped = {n: {e.request for e in events(built.engines[n], "drop")} for n in shots}
            for name, other in (("contiguous", "paged"), ("paged", "contiguous")):
                head = shots[name].waiting_id[:1].tolist()
                if told.text.startswith(name.capitalize()) and set(head) & dropped[other]:
                    assert "served" not in told.detail


def test_refused_for_good_is_not_called_placed():
    """With on_refusal = refuse the page would say that all is well while requests are refused."""
    built = lanes_after("chat-and-documents", 400, ("engine.queue", "refuse"), ("mix.rate", 0.4))
    shots = {name: engine.snapshot() for name, engine in built.engines.items()}
    assert shots["contiguous"].counters.dropped > 0
    assert verdict(shots, NOBODY).text != "Every request that arrived has its place."


def test_waiting_for_a_seat_is_not_called_placed():
    """Requests wait because of max_running or the token budget, and the page says none does."""
    built = lanes_after(
        "chat-and-documents", 200, ("engine.max_running", 2), ("memory.slots", 65536)
    )
    shots = {name: engine.snapshot() for name, engine in built.engines.items()}
    assert min(shot.counters.waiting for shot in shots.values()) > 0
    assert verdict(shots, NOBODY).text != "Every request that arrived has its place."
