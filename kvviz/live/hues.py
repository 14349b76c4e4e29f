"""A colour and a pattern for each request, chosen once and kept for its life.

Together they are a look: hue + 12 * pattern, 0 to 59.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvviz.caches.layout import Layout
from kvviz.engine.lanes import Lanes
from kvviz.records import Columns, Snapshot

HUES = 12
PATTERNS = 5  # the first is none


class HueBook:
    """Hands out looks: of a hue that no address neighbour has and few others, and the first
    pattern that is free in it. Up to 60 at once are all different, but for one that comes back:
    it keeps its own, though another may have it now.

    Told of every step, it gives the same colours in every run with the same settings. The last
    `remembered` requests keep theirs after they left, for those who look at a past step.
    """

    def __init__(self, remembered: int = 1 << 16) -> None:
        self._hue: dict[int, int] = {}
        self._past: dict[int, int] = {}
        self._remembered = remembered
        self._of_look = [0] * (HUES * PATTERNS)  # requests that have it now
        self._of_hue = [0] * HUES

    def update(self, snapshots: list[Snapshot]) -> dict[int, int]:
        """Colour the new requests; the first snapshot's addresses decide who is a neighbour.
        The hues of those that are in some lane or at the head of a queue: a copy."""
        shown = _shown(snapshots)
        self.follow(shown, lambda: live_owners(snapshots[0].columns))
        return {i: h for i, h in self._hue.items() if i in shown}

    def follow(self, shown: set[int], owners: Callable[[], np.ndarray]) -> None:
        """The same from the ids alone; `owners` (of the first lane's rows in use, by address) is
        asked for when one is new. Cheap enough for every step."""
        new = shown - self._hue.keys()
        if not new:
            return
        for gone in self._hue.keys() - shown:
            self._count(self._hue.pop(gone), -1)
        in_order: np.ndarray | None = None
        for request in sorted(new):
            look = self._past.get(request, -1)
            if look < 0:
                if in_order is None:
                    in_order = owners()
                near = _neighbours(in_order, request)
                look = self._chosen(request, {self._hue[n] % HUES for n in near if n in self._hue})
            self._hue[request] = self._past[request] = look
            self._count(look, 1)
        while len(self._past) > self._remembered:
            del self._past[next(iter(self._past))]

    @property
    def looks(self) -> dict[int, int]:
        """Of all that are remembered: a copy."""
        return dict(self._past)

    def of(self, snapshots: list[Snapshot]) -> dict[int, int]:
        """The hues that requests in these past snapshots had."""
        return {i: self._past[i] for i in _shown(snapshots) if i in self._past}

    def _chosen(self, request: int, near: set[int]) -> int:
        """A look that nobody has while there is one, in a hue that no neighbour has if one is
        left."""
        of_hue, wish = self._of_hue, request * 7
        free = [h for h in range(HUES) if of_hue[h] < PATTERNS]
        hue = min(
            [h for h in free if h not in near] or free or range(HUES),
            key=lambda h: (of_hue[h], (h * 5 + wish) % HUES),
        )
        return min(range(hue, HUES * PATTERNS, HUES), key=self._of_look.__getitem__)

    def _count(self, look: int, more: int) -> None:
        self._of_look[look] += more
        self._of_hue[look % HUES] += more


class Follower:
    """Tells a book of each step of some lanes, without a picture of their memory."""

    def __init__(self, book: HueBook) -> None:
        self.book = book
        self._entered: list[int] = []  # of each lane: how many were admitted, and the head

    def step(self, lanes: Lanes) -> None:
        """Call it after every step."""
        # Who is new in a lane was admitted, or heads its queue
        entered: list[int] = []
        for engine in lanes.engines.values():
            scheduler = engine.scheduler
            head = scheduler.waiting[0].request.id if scheduler.waiting else -1
            entered += scheduler.ledger.admitted, head
        if entered == self._entered:
            return
        self._entered = entered
        engines = list(lanes.engines.values())
        shown = {s.request.id for e in engines for s in e.scheduler.running}.union(entered[1::2])
        shown.discard(-1)
        self.book.follow(shown, lambda: _owners(engines[0].layout))


def _owners(layout: Layout) -> np.ndarray:
    """Whose the rows in use are, by address. Some layouts know it without a picture of all."""
    owners = getattr(layout, "owners", None)
    return owners() if owners else live_owners(layout.columns())


def live_owners(columns: Columns) -> np.ndarray:
    """Whose the rows in use are, in the order of addresses: integers [rows]."""
    return columns.owner[columns.owner >= 0]


def _shown(snapshots: list[Snapshot]) -> set[int]:
    shown = {i for s in snapshots for i in s.seq_id.tolist()}
    return shown | {int(s.waiting_id[0]) for s in snapshots if len(s.waiting_id)}


def _neighbours(owners: np.ndarray, request: int) -> set[int]:
    """Who owns the rows before and behind those of the request; itself too, perhaps."""
    at = (owners == request).nonzero()[0]
    beside = np.concatenate([at[at > 0] - 1, at[at < len(owners) - 1] + 1])
    return set(owners[beside].tolist())
