"""One number as a page shows it: what it is, how it came about, and who says so."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kvviz.metrics import holes
from kvviz.records import Snapshot
from kvviz.views.theme import number

MiB = 1 << 20


@dataclass(frozen=True)
class Number:
    """`formula` is written twice: in letters, and with the numbers of this snapshot.

    kind: counted (follows from the snapshot), measured (by a clock), rule (what theory expects)
    or absent (not applicable: `note` says why; never shown as 0). group: where it stands.
    """

    name: str
    value: str
    formula: str
    numerator: str
    denominator: str
    source: str
    note: str = ""
    kind: str = "counted"
    group: str = ""


@dataclass(frozen=True)
class Question:
    """What the numbers of one lane are made from. ask: slots of the next request, None when
    nothing waits; extras: what a layout or a clock counted, by name."""

    snapshot: Snapshot
    ask: int | None
    extras: dict[str, float]

    @cached_property
    def holes(self) -> np.ndarray:
        """Their sizes in address order, in slots."""
        return holes(self.snapshot)


def absent(name: str, formula: str, source: str, because: str) -> Number:
    """Not applicable, with the reason."""
    return Number(name, "n/a", formula, "", "", source, f"n/a because {because}", "absent")


def percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")


def slots(count: float) -> str:
    return "1 slot" if count == 1 else f"{number(count)} slots"


def mebibytes(count: float) -> str:
    """Bytes in the unit that keeps two or three digits."""
    if count < 10_240:
        return f"{number(count)} bytes"
    return f"{count / 1024:,.1f} KiB" if count < MiB else f"{count / MiB:,.1f} MiB"


def share(name: str, formula: str, top: tuple[str, int], bottom: tuple[str, int], source: str,
          note: str = "") -> Number:  # fmt: skip
    """A plain quotient of two counts of slots or blocks, shown in percent."""
    return Number(
        name,
        percent(top[1] / bottom[1]),
        f"{formula} = {number(top[1])} / {number(bottom[1])}",
        f"{top[0]}: {number(top[1])}",
        f"{bottom[0]}: {number(bottom[1])}",
        source,
        note,
    )
