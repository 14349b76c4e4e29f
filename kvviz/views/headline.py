"""The five numbers over a lane's map."""

from __future__ import annotations

from kvviz.records import Snapshot
from kvviz.views.number import Number, Question, absent
from kvviz.views.theme import number

COUNTED = "counted by the engine"


def headline(q: Question) -> list[Number]:
    """Free, largest admissible, false refusals, speed, running."""
    s = q.snapshot
    return [_free(s), _admissible(s), _false_refusals(s), _speed(q), _running(s)]


def _free(s: Snapshot) -> Number:
    return Number(
        "free",
        number(s.free),
        f"F = sum of all holes = {number(s.free)}",
        f"free slots: {number(s.free)}",
        f"slots in the pool: {number(s.capacity)}",
        "the map",
        f"{s.slot_bytes:,} bytes a slot: K and V of one token in all layers",
    )


def _admissible(s: Snapshot) -> Number:
    if s.paged:
        blocks = s.admissible // s.grain
        formula = f"free blocks x B = {number(blocks)} x {s.grain} = {number(s.admissible)}"
    else:
        formula = f"max h = {number(s.admissible)}"
    return Number(
        "largest admissible",
        number(s.admissible),
        formula,
        f"largest request that finds a place now: {number(s.admissible)}",
        f"F, free slots: {number(s.free)}",
        "the layout itself",
        "without any move",
    )


def _false_refusals(s: Snapshot) -> Number:
    c = s.counters
    kinds = ", ".join(f"{kind} {count:,}" for kind, count in c.refused.items())
    return Number(
        "false refusals",
        f"{number(c.false_refusals)} of {number(c.refusals)}",
        "refused as `fragmented` of all that were refused at first",
        f"free >= need, but no hole holds it: {number(c.false_refusals)}",
        f"requests refused when first asked: {number(c.refusals)}",
        COUNTED,
        f"by first verdict: {kinds}",
    )


def _speed(q: Question) -> Number:
    formula = "tokens generated / this lane's own seconds"
    speed = q.extras.get("tokens_per_second")
    if speed is None:
        return absent("tokens/s", formula, "measured", "no clock ran beside this snapshot")
    return Number(
        "tokens/s",
        number(speed),
        f"{formula} = {number(speed)}",
        "tokens generated over its last 128 steps",
        "seconds this lane spent on them",
        "measured",
        kind="measured",
    )


def _running(s: Snapshot) -> Number:
    c = s.counters
    return Number(
        "running",
        number(c.running),
        "sequences in this step's batch",
        f"running: {number(c.running)}",
        f"running and waiting: {number(c.running + c.waiting)}",
        COUNTED,
        f"{number(c.waiting)} wait, {number(c.finished)} finished, {number(c.preempted)} "
        f"preempted ({number(c.recomputed)} tokens computed again)",
    )
