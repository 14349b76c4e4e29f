"""Requests served by the live page's scheduler, on the step rule that incidents are told in.

Steps count from 1. Arrivals come first. (1) Each running sequence, oldest first, writes its next
chunk; when all it knows is written it samples a token at once, and when that was its last, its
slots are free for those after it in the same step. (2) A step without preemption admits from the
queue; who is admitted writes its first chunk, and samples in the next step at the earliest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from kvviz.caches.layout import extras_of
from kvviz.engine.scheduler import Scheduler
from kvviz.engine.sequence import Sequence
from kvviz.records import ADMITTED, NEVER, SIBLINGS, Request
from kvviz.scenario.memory import Frame, build, moves, place, start_check
from kvviz.scenario.parts import Job, Scenario

MAX_WORK = 1_000_000  # sequences served, summed over the steps; some seconds


class StepLine(NamedTuple):
    """What is kept of each step."""

    step: int
    used: int
    free: int
    admissible: int
    running: int
    waiting: int


class RequestsReplay:
    """`steps()` serves the requests. One replay runs once."""

    def __init__(self, scenario: Scenario) -> None:
        assert scenario.jobs is not None, "this scenario has ops, not requests"
        self.scenario = scenario
        self.jobs: tuple[Job, ...] = scenario.jobs
        self.layout = build(scenario)
        self.whole = self.layout.free
        self.scheduler = Scheduler(self.layout, scenario.config.engine)
        self.step = 0
        self.peak_used = 0
        self.passes = 0
        self.lines: list[StepLine] = []
        self.deadlock: dict[str, Any] | None = None
        self.stopped = ""
        self._due = deque(sorted(range(len(self.jobs)), key=lambda i: self.jobs[i].arrive))
        self._sequences: dict[int, Sequence] = {}
        self._parked: list[Sequence] = []
        self._admitted: dict[int, int] = {}
        self._finished: dict[int, int] = {}
        self._dropped: set[int] = set()
        self._filled: dict[int, tuple[int, int]] = {}
        self._runs_moved = 0
        self._work = 0.0

    def report(self) -> dict[str, Any]:
        """Plain values: each request, and the run as a whole."""
        start = start_check(self.scenario, self.layout)
        if start is None or start["ok"]:
            for _ in self.steps():
                pass
        ledger = self.scheduler.ledger
        held = sum(held for _, held in self._filled.values())
        written = sum(written for written, _ in self._filled.values())
        extras = extras_of(self.layout)
        return {
            "start": start,
            "requests": [self._told(id) for id in self._ids()],
            "steps": self.step,
            "passes": self.passes,
            "peak_used": self.peak_used,
            "peak_units": -(-self.peak_used // self.layout.grain),
            "grain": self.layout.grain,
            "preemptions": ledger.preempted,
            "recomputed_tokens": ledger.recomputed,
            "slots_moved": ledger.slots_moved,
            "runs_moved": self._runs_moved,
            "slots_copied": ledger.copied,
            "slots_swapped": ledger.swapped,
            "refused": dict(ledger.refused),
            "held_never_written": round(1 - written / held, 6) if held else None,
            "deadlock": self.deadlock,
            "stopped": self.stopped,
            "extras": {key: int(value) for key, value in extras.items()},
        }

    def steps(self) -> Iterator[StepLine]:
        """One line a step, until all is served, nothing can change, or a bound is met."""
        while self._left() and not self._over():
            self.step += 1
            self._arrivals()
            wrote, preempted = self._serve()
            self.passes += max(place(self.layout) or 0, wrote)
            self._runs_moved += moves(self.layout)
            self._learn()
            self._judge(preempted)
            line = self._line()
            self.lines.append(line)
            yield line

    def frames(self, first: int, last: int) -> Iterator[Frame]:
        """Maps after steps [first, last), from 0."""
        names = {id: f"request {name}" for id, name in self._all_names().items()}
        for index, line in enumerate(self.steps()):
            if index >= last:
                return
            if index >= first:
                head = self.scheduler.head
                yield Frame(
                    f"step {line.step}",
                    self.layout.columns(),
                    names,
                    head.need if head else 0,
                    head.kind if head else "",
                )

    def _left(self) -> bool:
        return bool(self._due or self.scheduler.running or self.scheduler.waiting)

    def _over(self) -> bool:
        if self.deadlock and not self._due:
            self.stopped = f"deadlock at step {self.deadlock['step']}: nothing can change any more"
        elif self.step >= self.scenario.max_steps:
            self.stopped = (
                f"max_steps {self.scenario.max_steps:,} is reached; "
                f"{len(self.scheduler.running)} run, {len(self.scheduler.waiting)} wait"
            )
        elif self._work > MAX_WORK:
            self.stopped = (
                f"the work bound is reached at step {self.step:,}: {MAX_WORK:,} sequences served, "
                "summed over the steps. Replay fewer requests or shorter ones."
            )
        return bool(self.stopped)

    def _arrivals(self) -> None:
        while self._due and self.jobs[self._due[0]].arrive < self.step:
            id = self._due.popleft()
            self.scheduler.submit(self._request(id), self.step)
            self._sequences[id] = self.scheduler.waiting[-1]

    def _request(self, id: int) -> Request:
        """What the layout is told of a job."""
        job = self.jobs[id]
        output, limit = (job.output, job.limit) if job.output_known else (1, 1)
        return Request(
            id,
            job.arrive,
            job.prompt,
            output,
            limit,
            text=id,
            samples=job.samples,
            priority=job.priority,
        )

    def _serve(self) -> tuple[bool, bool]:
        """Both parts of a step: (was anything written, did anybody give way)."""
        s = self.scheduler
        self._work += 1 + len(s.running) + len(s.waiting) / 20
        s.begin(self.step)
        before = s.ledger.preempted
        _, rows, budget = s.continue_running(self._wrote)
        preempted = s.ledger.preempted > before
        entered = [] if preempted else s.admit(budget)
        for sequence, count in entered:
            sequence.written += count
            self._fill(sequence)
            self._park_if_due(sequence)
        self._peak()
        return any(count for _, count in rows + entered), preempted

    def _wrote(self, sequence: Sequence, count: int) -> None:
        """A running sequence wrote its part: sample, fork, finish, all at once."""
        sequence.written += count
        self._fill(sequence)
        self._peak()
        if sequence.pending or self._park_if_due(sequence):
            return
        children = self._fork(sequence) if sequence.forks else []
        for each in (sequence, *children):
            each.tokens += 1
            if each.generated >= self._job(each.request.id).output:
                self.scheduler.finish(each)
        self._peak()

    def _fork(self, parent: Sequence) -> list[Sequence]:
        children = self.scheduler.fork(parent)
        queued = islice(self.scheduler.waiting, parent.request.samples)
        for child in (*children, *queued):
            self._sequences.setdefault(child.request.id, child)
        return children

    def _park_if_due(self, sequence: Sequence) -> bool:
        """A parked request with its prompt written leaves the batch, and keeps its slots."""
        if not self._job(sequence.request.id).parked or sequence.pending:
            return False
        self.scheduler.leave(sequence)
        self._parked.append(sequence)
        return True

    def _judge(self, preempted: bool) -> None:
        """Nobody runs, and the head finds no place: no later step can differ from this one."""
        s = self.scheduler
        if self.deadlock or preempted or s.running or not s.waiting or s.head is None:
            return
        head = s.waiting[0].request.id
        self.deadlock = {
            "step": self.step,
            "holders": [self._name(p.request.id) for p in self._parked],
            "held": [self.layout.held(p.request.id) for p in self._parked],
            "head": self._name(head),
            "need": s.head.need,
            "free": self.layout.free,
        }

    def _learn(self) -> None:
        """What the scheduler told of this step."""
        for event in self.scheduler.ledger.take_events():
            if event.kind in ("admit", "fork"):
                self._admitted.setdefault(event.request, self.step)
            elif event.kind == "finish":
                self._finished[event.request] = self.step
            elif event.kind == "drop":
                self._dropped.add(event.request)

    def _fill(self, sequence: Sequence) -> None:
        id = sequence.request.id
        self._filled[id] = (sequence.written, self.layout.held(id))

    def _peak(self) -> None:
        self.peak_used = max(self.peak_used, self.whole - self.layout.free)

    def _line(self) -> StepLine:
        free = self.layout.free
        s = self.scheduler
        return StepLine(
            self.step,
            self.whole - free,
            free,
            self.layout.admissible,
            len(s.running),
            len(s.waiting),
        )

    def _told(self, id: int) -> dict[str, Any]:
        sequence = self._sequences.get(id)
        return {
            "request": self._name(id),
            "verdict": self._verdict(id, sequence),
            "admitted_step": self._admitted.get(id),
            "finished_step": self._finished.get(id),
            "preemptions": sequence.preemptions if sequence else 0,
            "recomputed_tokens": sequence.recomputed if sequence else 0,
            "state": self._state(id, sequence),
        }

    def _verdict(self, id: int, sequence: Sequence | None) -> str | None:
        """The first refusal, `admitted` when there was none. Who was turned away can never fit,
        unless the queue refuses all whom it finds no place for."""
        if sequence is None:
            return None
        if id in self._dropped and self.scenario.config.engine.queue != "refuse":
            return NEVER
        return sequence.first_refusal or (ADMITTED if id in self._admitted else None)

    def _state(self, id: int, sequence: Sequence | None) -> str:
        if sequence is None:
            return "not arrived"
        if id in self._finished:
            return "finished"
        if id in self._dropped:
            return "turned away"
        if sequence in self._parked:
            return "parked"
        return "running" if sequence.admitted >= 0 else "waiting"

    def _ids(self) -> list[int]:
        """Requests in the order of the file, each with its samples behind it."""
        found = set(self._sequences) | set(range(len(self.jobs)))
        return sorted(found, key=lambda id: (id % SIBLINGS, id))

    def _job(self, id: int) -> Job:
        return self.jobs[id % SIBLINGS]

    def _name(self, id: int) -> int | str:
        """The place in the file, from 0; a sample behind a point."""
        sample, place = divmod(id, SIBLINGS)
        return f"{place}.{sample}" if sample else place

    def _all_names(self) -> dict[int, int | str]:
        return {
            place + sample * SIBLINGS: self._name(place + sample * SIBLINGS)
            for place, job in enumerate(self.jobs)
            for sample in range(job.samples)
        }
