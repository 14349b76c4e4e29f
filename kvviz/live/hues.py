"""A colour for each request, chosen once and kept for its life."""

from __future__ import annotations

import itertools
from collections import Counter

from kvviz.records import Snapshot

HUES = 12


class HueBook:
    """Hands out hues 0..11: not one of its address neighbours', then the least used."""

    def __init__(self) -> None:
        self._hue: dict[int, int] = {}

    def update(self, snapshots: list[Snapshot]) -> dict[int, int]:
        """Forget requests that left every lane, colour the new ones; the first snapshot's
        addresses decide who is a neighbour. Returns a copy."""
        live = {int(i) for s in snapshots for i in s.seq_id}
        live |= {int(s.waiting_id[0]) for s in snapshots if len(s.waiting_id)}
        self._hue = {i: h for i, h in self._hue.items() if i in live}
        counts = Counter(self._hue.values())
        neighbours = _neighbours(snapshots[0]) if snapshots else {}
        for request in sorted(live - self._hue.keys()):
            taken = {self._hue.get(n) for n in neighbours.get(request, ())}
            hue = min(
                [h for h in range(HUES) if h not in taken] or range(HUES),
                key=lambda h: (counts[h], (h * 5 + request * 7) % HUES),
            )
            self._hue[request] = hue
            counts[hue] += 1
        return dict(self._hue)


def _neighbours(snapshot: Snapshot) -> dict[int, set[int]]:
    owners = [int(o) for o in snapshot.columns.owner if o >= 0]
    near: dict[int, set[int]] = {}
    for a, b in itertools.pairwise(owners):
        if a != b:
            near.setdefault(a, set()).add(b)
            near.setdefault(b, set()).add(a)
    return near
