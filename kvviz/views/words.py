"""The verdict sentence and the key figures: text and numbers, no markup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvviz.metrics import external_fragmentation
from kvviz.records import ADMITTED, CAPACITY, FRAGMENTED, Event, Snapshot
from kvviz.views.theme import number


@dataclass(frozen=True)
class Sentence:
    """`tone`: alarm (a false refusal), tight (no memory), calm."""

    tone: str
    text: str
    detail: str


@dataclass(frozen=True)
class KeyFigure:
    label: str
    value: str
    help: str


def verdict(snapshots: Mapping[str, Snapshot], last: Mapping[str, Event | None]) -> Sentence:
    """Why the head of the queue waits, with the numbers that decide it."""
    for name, snapshot in snapshots.items():
        head = snapshot.head
        if head is not None and head.kind == FRAGMENTED:
            request = int(snapshot.waiting_id[0])
            return Sentence(
                "alarm",
                (
                    f"{name.capitalize()} refuses request {request}: it needs {number(head.need)} "
                    f"slots; {number(head.free)} are free, but the largest hole is "
                    f"{number(head.largest)}. Fragmented."
                ),
                _elsewhere(snapshots, name, request),
            )
    for name, snapshot in snapshots.items():
        head = snapshot.head
        if head is not None and head.kind == CAPACITY:
            request = int(snapshot.waiting_id[0])
            return Sentence(
                "tight",
                (
                    f"{name.capitalize()} lets request {request} wait: it needs "
                    f"{number(head.need)} slots and only {number(head.free)} are free. "
                    "Capacity, not fragmentation."
                ),
                _elsewhere(snapshots, name, request),
            )
    for name, snapshot in snapshots.items():
        if snapshot.head is not None and snapshot.head.kind == ADMITTED:
            request, need = int(snapshot.waiting_id[0]), number(snapshot.head.need)
            return Sentence(
                "calm",
                f"{name.capitalize()} has just made room for request {request}: {need} slots. "
                "It can be admitted in the next step.",
                _elsewhere(snapshots, name, request),
            )
    return Sentence("calm", _nobody_refused(snapshots), _calm(snapshots, last))


def key_figures(snapshot: Snapshot, tokens_per_second: float) -> list[KeyFigure]:
    """Headline numbers of a lane, each with its formula and what went into it."""
    counters = snapshot.counters
    free, admissible = snapshot.free, snapshot.admissible
    external = external_fragmentation(free, admissible)
    paged = snapshot.paged
    rule = f"free blocks x {snapshot.grain} slots a block" if paged else "max of the hole sizes"
    share = "n/a" if external is None else f"{external:.0%}"
    return [
        KeyFigure(
            "free",
            number(free),
            f"F, the sum of all holes: {number(free)} of {number(snapshot.capacity)} "
            f"slots, {snapshot.slot_bytes:,} bytes each",
        ),
        KeyFigure(
            "largest admissible",
            number(admissible),
            f"{rule} = {number(admissible)}. External fragmentation 1 - largest / F = {share}",
        ),
        KeyFigure(
            "false refusals",
            f"{number(counters.false_refusals)} of {number(counters.refusals)}",
            "requests whose first refusal was `fragmented` (free >= need, but no hole "
            "holds it), of all that were refused at first: "
            + ", ".join(f"{kind} {count:,}" for kind, count in counters.refused.items()),
        ),
        KeyFigure(
            "tokens/s",
            number(tokens_per_second),
            "tokens generated a second of this lane's own time, over its last 128 steps; measured",
        ),
        KeyFigure(
            "running",
            number(counters.running),
            f"sequences in this step's batch; {number(counters.waiting)} wait, "
            f"{number(counters.finished)} finished, {number(counters.preempted)} "
            f"preempted ({number(counters.recomputed)} tokens computed again), "
            f"{number(counters.slots_moved)} slots moved in "
            f"{counters.move_seconds * 1e3:,.1f} ms",
        ),
    ]


def _elsewhere(snapshots: Mapping[str, Snapshot], name: str, request: int) -> str:
    """What became of that request in the other lanes."""
    words = []
    for other, snapshot in snapshots.items():
        if other == name:
            continue
        if request in snapshot.seq_id:
            since = int(snapshot.seq_since[list(snapshot.seq_id).index(request)])
            words.append(f"{other.capitalize()} admitted it at step {number(since)}.")
        elif request in snapshot.waiting_id:
            words.append(f"In {other} it waits too: {number(snapshot.free)} slots are free.")
        elif request in snapshot.dropped_id:
            words.append(f"{other.capitalize()} has turned it away.")
        elif request >= snapshot.counters.arrived:
            words.append(f"{other.capitalize()} has not seen it yet.")
        elif snapshot.counters.waiting <= len(snapshot.waiting_id):
            words.append(f"{other.capitalize()} has served it already.")
    return " ".join(words)


def _nobody_refused(snapshots: Mapping[str, Snapshot]) -> str:
    """No head is held back by memory now; who waits for something else, who was turned away."""
    for name, snapshot in snapshots.items():
        if snapshot.counters.waiting:
            return (
                f"{name.capitalize()}: {_requests(snapshot.counters.waiting)} waiting for a turn "
                "in the batch; memory holds nobody back."
            )
    for name, snapshot in snapshots.items():
        if snapshot.counters.dropped:
            return (
                f"Nobody waits. {name.capitalize()} has turned "
                f"{_requests(snapshot.counters.dropped)} away so far."
            )
    return "Every request that arrived has its place."


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{number(count)} requests"


def _calm(snapshots: Mapping[str, Snapshot], last: Mapping[str, Event | None]) -> str:
    for name, event in last.items():
        if event is not None and event.verdict == FRAGMENTED:
            return (
                f"Last false refusal in {name}: request {event.request} at step "
                f"{number(event.step)}, needed {number(event.need)} with "
                f"{number(event.free)} free, largest hole {number(event.largest)}."
            )
    false = sum(snapshot.counters.false_refusals for snapshot in snapshots.values())
    if false:
        return f"Refused earlier in spite of enough free memory: {_requests(false)}."
    return "No request has been refused in spite of enough free memory."
