"""The verdict sentence: text and numbers, no markup."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvviz.records import ADMITTED, CAPACITY, FRAGMENTED, Event, Snapshot
from kvviz.views.theme import number


@dataclass(frozen=True)
class Sentence:
    """`tone`: alarm (a false refusal), tight (no memory), calm."""

    tone: str
    text: str
    detail: str


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


def _elsewhere(snapshots: Mapping[str, Snapshot], name: str, request: int) -> str:
    """What became of that request in the other lanes."""
    words = []
    for other, snapshot in snapshots.items():
        if other == name:
            continue
        if request in snapshot.seq_id:
            # The step whose picture shows it, as everywhere on the page
            since = int(snapshot.seq_since[list(snapshot.seq_id).index(request)]) + 1
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
    if all(not s.counters.arrived and s.free == s.capacity for s in snapshots.values()):
        return "No request has arrived yet: all slots are free."
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
                f"{number(event.step + 1)}, needed {number(event.need)} with "
                f"{number(event.free)} free, largest hole {number(event.largest)}."
            )
    false = sum(snapshot.counters.false_refusals for snapshot in snapshots.values())
    if false:
        return f"Refused earlier in spite of enough free memory: {_requests(false)}."
    return "No request has been refused in spite of enough free memory."
