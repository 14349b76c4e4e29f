"""HueBook: a request's colour."""

from __future__ import annotations

import itertools

from kvviz.build import build_lanes
from kvviz.live.hues import HUES, PATTERNS, HueBook
from kvviz.records import HOLE
from tests.live.support import dry
from tests.views.made import snapshot


def test_a_hue_lasts_for_life():
    """A request would change its colour while it runs."""
    book, lanes = HueBook(), build_lanes(dry({"mix.rate": 1.0}))
    known: dict[int, int] = {}
    for _ in range(400):
        lanes.step()
        shots = [engine.snapshot() for engine in lanes.engines.values()]
        hues = book.update(shots)
        running = {int(i) for s in shots for i in s.seq_id}
        heads = {int(s.waiting_id[0]) for s in shots if len(s.waiting_id)}
        assert running | heads == set(hues)
        assert set(hues.values()) <= set(range(HUES * PATTERNS))
        assert {i: h for i, h in known.items() if i in hues} == {
            i: hues[i] for i in known if i in hues
        }
        known = hues


def test_a_new_request_differs_from_its_neighbours():
    """Two requests side by side would look like one."""
    book = HueBook()
    owners: list[int] = []
    for request in range(60):
        owners.insert((request * 7) % (len(owners) + 1), request)
        at = owners.index(request)
        hues = book.update([_row_of(owners)])
        near = owners[max(0, at - 1) : at] + owners[at + 1 : at + 2]
        assert hues[request] not in {hues[n] for n in near}


def test_all_that_are_new_at_once_differ_from_their_neighbours():
    """The first picture would have neighbours in one colour."""
    owners = list(range(40))
    hues = HueBook().update([_row_of(owners)])
    assert all(hues[a] % HUES != hues[b] % HUES for a, b in itertools.pairwise(owners))
    assert set(range(HUES)) == {look % HUES for look in hues.values()}


def test_fifty_at_once_all_look_different():
    """Two of the requests on the page could not be told apart."""
    hues = HueBook().update([_row_of(list(range(50)))])
    assert len(set(hues.values())) == 50
    few = HueBook().update([_row_of(list(range(HUES)))])
    assert set(few.values()) == set(range(HUES))  # no pattern is needed yet


def test_holes_between_two_requests_do_not_part_them():
    """Two requests with a hole between them would look like one with a hole in it."""
    shot = snapshot([(10, 10, 0), (10, 0, HOLE), (10, 10, 1)])
    hues = HueBook().update([shot])
    assert hues[0] != hues[1]


def test_those_that_are_gone_are_forgotten():
    """The book would grow for ever."""
    book = HueBook()
    book.update([_row_of([0, 1, 2])])
    assert {1} == set(book.update([_row_of([1])]))
    assert book.update([]) == {}


def test_a_copy_is_handed_out():
    """A viewer's picture would change under it."""
    book = HueBook()
    first = book.update([_row_of([0, 1])])
    first.clear()
    assert {0, 1} == set(book.update([_row_of([0, 1])]))


def test_a_request_with_neighbours_of_every_hue_gets_one():
    """A paged lane alone would fail at the first request that touches twelve colours."""
    book = HueBook()
    book.update([_row_of(list(range(HUES)))])
    mixed = [owner for other in range(HUES) for owner in (other, 99)]
    assert 99 in book.update([_row_of(mixed)])


def _row_of(owners: list[int]):
    return snapshot([(4, 4, owner) for owner in owners])
