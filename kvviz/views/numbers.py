"""Every number of a lane in one list, and the lists of several lanes side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kvviz.records import Snapshot
from kvviz.views.classical import indices, rules
from kvviz.views.headline import headline
from kvviz.views.number import Number, Question, absent
from kvviz.views.occupancy import costs, occupancy

HEADLINE = "now"
# Shown in this order; the first group stands over the maps.
GROUPS: dict[str, Callable[[Question], list[Number]]] = {
    HEADLINE: headline,
    "Free memory, for the next request": indices,
    "Holes: measured beside the rules": rules,
    "Where the slots are": occupancy,
    "What the layout costs": costs,
}
_OTHER_NAMES = {"free runs": "holes"}


def numbers(
    snapshot: Snapshot,
    ask: int | None,
    extras: Mapping[str, float] | None = None,
    groups: tuple[str, ...] = tuple(GROUPS),
) -> list[Number]:
    """All numbers of one lane.

    ask: slots of the next request, None when nothing waits. extras: beside the snapshot's own,
    what a clock measured (`tokens_per_second`).
    """
    question = Question(snapshot, ask, {**snapshot.extras, **(extras or {})})
    return [replace(found, group=group) for group in groups for found in GROUPS[group](question)]


def side_by_side(lanes: Mapping[str, list[Number]]) -> dict[str, dict[str, dict[str, Number]]]:
    """{group: {row: {lane: Number}}}, with each row in every lane: what only one layout counts
    is n/a in the others."""
    rows: dict[str, dict[str, dict[str, Number]]] = {}
    for lane, found in lanes.items():
        for each in found:
            row = _OTHER_NAMES.get(each.name, each.name)
            rows.setdefault(each.group, {}).setdefault(row, {})[lane] = each
    for group, of_group in rows.items():
        for row, cells in of_group.items():
            if len(cells) < len(lanes):
                missing = _missing(row, group, next(iter(cells.values())))
                of_group[row] = {lane: cells.get(lane, missing) for lane in lanes}
    return rows


def _missing(row: str, group: str, known: Number) -> Number:
    because = "this layout does not count it"
    return replace(absent(row, known.formula, known.source, because), group=group)
