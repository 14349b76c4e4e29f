"""Compaction plans: which regions go where, and what that costs in slots copied.

Full slide, in address order:

    before   |..|aa|...|bbb|.|cc|          after   |aa|bbb|cc|......|
"""

from __future__ import annotations

from collections.abc import Iterable

from kvviz.records import Region


def full_slide(live: Iterable[Region]) -> list[tuple[Region, int]]:
    """(region, new start) for each live region that must move, in a safe order of copying.

    Every region moves down, lowest first, so a copy never overwrites one that is still to go.
    """
    at = 0
    plan = []
    for region in sorted(live):
        if region.start != at:
            plan.append((region, at))
        at += region.size
    return plan
