"""Continuous batching: who runs, who waits, who gives way.

A step has two parts. (1) Each running sequence, oldest first, writes its next token or prefill
chunk, within the token budget; when its slots run short, the youngest running sequence is
preempted (its slots are freed, it goes back to the head of the queue and is computed anew).
(2) A step without preemption admits from the head of the queue, strictly first come first
served. Each waiting request is given a verdict once, when memory first refuses it; a request
that can never fit is refused for good at once and does not block the queue.
"""

from __future__ import annotations

from collections import deque

from kvviz.caches.layout import Layout
from kvviz.config import Engine as EngineConfig
from kvviz.engine.forward import Chunk
from kvviz.engine.sequence import Sequence
from kvviz.records import ADMITTED, NEVER, QUEUED, REFUSALS, WAITING_SHOWN, Event, Request, Verdict


class Scheduler:
    """Owns the queue and the running list; asks the layout, never the tensors."""

    def __init__(self, layout: Layout, config: EngineConfig) -> None:
        self.layout = layout
        self.config = config
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.head: Verdict | None = None
        self.events: list[Event] = []
        self.turned_away: deque[int] = deque(maxlen=WAITING_SHOWN)
        self.refused = dict.fromkeys(REFUSALS, 0)
        self.arrived = self.admitted = self.preempted = 0
        self.dropped = self.recomputed = self.slots_moved = 0
        self._step = 0

    def submit(self, request: Request, step: int) -> None:
        """A request arrives; a full queue turns it away."""
        self._step = step
        sequence = Sequence(request, step)
        self.arrived += 1
        self._note("arrive", request.id, slots=request.life)
        if len(self.waiting) >= self.config.queue_limit:
            self._refuse(sequence, self._standing(sequence))
            self._drop(sequence, "the queue is full")
            return
        self.waiting.append(sequence)

    def schedule(self, step: int) -> list[tuple[Sequence, int]]:
        """(sequence, tokens to write) for this step; layouts and queue are updated."""
        self._step = step
        self.head = None
        preempted = self.preempted
        rows, budget = self._continue_running(self.config.token_budget)
        if self.preempted == preempted:
            rows += self._admit(budget)
        return rows

    def finish(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.layout.release(sequence.request.id)
        self._note("finish", sequence.request.id, slots=sequence.written)

    def _continue_running(self, budget: int) -> tuple[list[tuple[Sequence, int]], int]:
        rows = []
        for sequence in list(self.running):
            if budget <= 0:
                break
            if sequence.admitted < 0:  # gave way to an older one in this very step
                continue
            count = min(sequence.pending, budget)
            if self._append(sequence, count):
                rows.append((sequence, count))
                budget -= count
        return rows, budget

    def _append(self, sequence: Sequence, count: int) -> bool:
        """Make room for `count` tokens, by preempting younger sequences if need be."""
        while True:
            verdict = self.layout.append(sequence.request.id, count)
            if verdict.moved:
                self._moved(sequence, verdict)
            if verdict.admitted:
                return True
            victim = self.running[-1]
            self._preempt(victim, verdict)
            if victim is sequence:
                return False

    def _preempt(self, victim: Sequence, verdict: Verdict) -> None:
        self.running.remove(victim)
        self.layout.release(victim.request.id)
        self.preempted += 1
        self.recomputed += victim.written
        self._note("preempt", victim.request.id, verdict, slots=victim.written)
        victim.written, victim.admitted = 0, -1
        victim.preemptions += 1
        self.waiting.appendleft(victim)

    def _admit(self, budget: int) -> list[tuple[Sequence, int]]:
        rows: list[tuple[Sequence, int]] = []
        while self.waiting and budget > 0 and len(self.running) < self.config.max_running:
            sequence = self.waiting[0]
            verdict = self.layout.admit(sequence.request, sequence.tokens)
            if not verdict.admitted:
                if self._turn_down(sequence, verdict):
                    continue
                break
            self._start(sequence, verdict)
            count = min(sequence.pending, budget)
            appended = self.layout.append(sequence.request.id, count)
            assert appended.admitted, f"admitted, but the first chunk has no room: {appended}"
            rows.append((sequence, count))
            budget -= count
        if self.head is not None:
            self._judge_queue()
        return rows

    def _start(self, sequence: Sequence, verdict: Verdict) -> None:
        self.waiting.popleft()
        self.running.append(sequence)
        sequence.admitted = self._step
        self.admitted += 1
        self._note("admit", sequence.request.id, verdict)
        if verdict.moved:
            self._moved(sequence, verdict)

    def _turn_down(self, sequence: Sequence, verdict: Verdict) -> bool:
        """Refuse the head. True when it left the queue, so that the next one is asked."""
        self._refuse(sequence, verdict)
        if verdict.kind == NEVER or self.config.on_refusal == "refuse":
            self.waiting.popleft()
            self._drop(sequence, "it can never fit" if verdict.kind == NEVER else "refused")
            return True
        self.head = verdict
        return False

    def _judge_queue(self) -> None:
        """First verdicts for those behind a head that memory refused."""
        for sequence in [s for s in self.waiting if not s.first_refusal]:
            verdict = self._standing(sequence)
            self._refuse(sequence, verdict)
            if verdict.kind == NEVER:
                self.waiting.remove(sequence)
                self._drop(sequence, "it can never fit")

    def _standing(self, sequence: Sequence) -> Verdict:
        """The verdict of a request that is not at the head."""
        verdict = self.layout.question(sequence.request, sequence.tokens)
        return verdict._replace(kind=QUEUED) if verdict.kind == ADMITTED else verdict

    def _refuse(self, sequence: Sequence, verdict: Verdict) -> None:
        if sequence.first_refusal:
            return
        sequence.first_refusal = verdict.kind
        self.refused[verdict.kind] += 1
        self._note("refuse", sequence.request.id, verdict)

    def _drop(self, sequence: Sequence, why: str) -> None:
        self.dropped += 1
        self.turned_away.append(sequence.request.id)
        self._note("drop", sequence.request.id, text=why)

    def _moved(self, sequence: Sequence, verdict: Verdict) -> None:
        self.slots_moved += verdict.moved
        self._note("move", sequence.request.id, verdict, slots=verdict.moved)

    def _note(
        self,
        kind: str,
        request: int,
        verdict: Verdict | None = None,
        *,
        slots: int = 0,
        text: str = "",
    ) -> None:
        if verdict is None:
            self.events.append(Event(self._step, kind, request, slots=slots, text=text))
        else:
            self.events.append(
                Event(
                    self._step,
                    kind,
                    request,
                    verdict.kind,
                    verdict.need,
                    verdict.free,
                    verdict.largest,
                    slots,
                    text,
                )
            )


def chunks(rows: list[tuple[Sequence, int]]) -> list[Chunk]:
    """The batch of a schedule: what to write, and which rows yield a token."""
    return [Chunk(s.request, s.written, count, count == s.pending) for s, count in rows]
