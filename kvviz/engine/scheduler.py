"""Continuous batching: who runs, who waits, who gives way.

A step has two parts. (1) Each running sequence, oldest first, writes its next token or prefill
chunk, within the token budget; when its slots run short, a victim is preempted: its slots are
freed, it goes back to the head of the queue, and is computed anew or swapped in from host
memory. (2) A step without preemption admits from the head of the queue, strictly first come
first served, or past a head that finds no place. Each waiting request is given a verdict once,
when memory first refuses it; a request that can never fit is refused for good at once and does
not block the queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from kvviz.caches.layout import Layout
from kvviz.config import Engine as EngineConfig
from kvviz.engine.hostswap import HostSwap
from kvviz.engine.ledger import Ledger
from kvviz.engine.running import RunningFacts
from kvviz.engine.schedule import Row, Schedule
from kvviz.engine.sequence import Sequence
from kvviz.engine.victims import CHOICES
from kvviz.records import ADMITTED, CAPACITY, NEVER, QUEUED, Request, SwappedIn, SwappedOut, Verdict


class Scheduler:
    """Owns the queue and the running list; asks the layout, never the tensors."""

    def __init__(self, layout: Layout, config: EngineConfig) -> None:
        self.layout = layout
        self.config = config
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.facts = RunningFacts()
        self.head: Verdict | None = None
        self.ledger = Ledger()
        self.host = HostSwap(config.swap_slots, layout.grain)
        self._decoding = 0  # so many of the oldest wrote one token each in one call
        self._judged = False  # all who wait have had their first verdict
        # The head and its verdict, while nothing can have made room for it
        self._refused: tuple[Sequence, Verdict] | None = None
        self._append_each = getattr(layout, "append_each", None)
        self._maintain = getattr(layout, "maintain", None)

    def reconfigure(self, config: EngineConfig) -> None:
        """Take settings that need no restart; the layout has taken its own."""
        self.config = config
        self.reconsider()

    def shorten(self, sequence: Sequence) -> None:
        """It ends with its next token, wherever it is."""
        request = sequence.request
        output = min(request.output_len, sequence.generated + 1)
        sequence.request = replace(request, output_len=output)
        sequence.life = sequence.request.life
        if sequence.admitted >= 0:
            self.facts.shorten(self.running.index(sequence), sequence.life)
        self.reconsider()

    def reconsider(self) -> None:
        """Something has changed that may make room for the head: ask for it again."""
        self._refused = None

    def submit(self, request: Request, step: int) -> None:
        """A request arrives; a full queue turns it away."""
        self.ledger.step = step
        sequence = Sequence(request, step)
        self.ledger.arrived += 1
        self.ledger.note("arrive", request.id, slots=request.life)
        if len(self.waiting) >= self.config.queue_limit:
            self._refuse(sequence, self._standing(sequence))
            self._drop(sequence, "the queue is full")
            return
        self.waiting.append(sequence)
        self._judged = False

    def schedule(self, step: int) -> Schedule:
        """What this step writes; layout and queue are updated."""
        self.begin(step)
        preempted = self.ledger.preempted
        oldest, rows, budget = self.continue_running()
        if self.ledger.preempted == preempted:
            rows += self.admit(budget)
        return Schedule(oldest, rows)

    def begin(self, step: int) -> None:
        self.ledger.step = step
        self.head = None
        moved = self._maintain() if self._maintain else 0
        if moved:
            self.reconsider()
            self.ledger.slots_moved += moved
            self.ledger.note("move", -1, slots=moved)

    def continue_running(
        self, wrote: Callable[[Sequence, int], None] | None = None
    ) -> tuple[list[Sequence], list[Row], int]:
        """Part 1: (the oldest, who write one token each, the rows of the others, what is left of
        the token budget). `wrote` is told each row at once; then all are among the others."""
        budget, preempted = self.config.token_budget, self.ledger.preempted
        oldest = self._decode_oldest(budget) if wrote is None else []
        rows: list[Row] = []
        budget -= len(oldest)
        for sequence in self.running[len(oldest) :]:
            if budget <= 0:
                break
            if sequence.admitted < 0:  # gave way to another in this very step
                continue
            count = min(sequence.pending, budget, self._chunk)
            if self._append(sequence, count):
                rows.append((sequence, count))
                budget -= count
                if wrote:
                    wrote(sequence, count)
        if self.ledger.preempted != preempted:
            oldest = [sequence for sequence in oldest if sequence.admitted >= 0]
            rows = [row for row in rows if row[0].admitted >= 0]
        return oldest, rows, budget

    def admit(self, budget: int) -> list[Row]:
        """Part 2: rows of the sequences that start now."""
        rows: list[Row] = []
        behind = 0  # this many at the head wait, and are passed
        while behind < len(self.waiting) and budget > 0 and self._has_turn():
            sequence = self.waiting[behind]
            if standing := self._still_refused(sequence):
                self.head = standing
                break
            verdict, count = self._enter(sequence, budget)
            if verdict.admitted:
                del self.waiting[behind]
                self.ledger.bypassed += behind > 0
                self._start(sequence, verdict)
                rows.append((sequence, count))
                budget -= count
            elif not self._turn_down(sequence, verdict, behind):
                if self.config.queue != "skip":
                    break
                behind += 1
        if self.head is not None and self.config.queue != "skip":
            self._judge_queue()
        return rows

    def question(self, sequence: Sequence) -> Verdict:
        """What memory says to this sequence now. One that was swapped out needs room for all that
        comes back, and for the chunk."""
        request, tokens, swapped = sequence.request, sequence.tokens, sequence.swapped
        question_return = getattr(self.layout, "question_return", None)
        if swapped and question_return:
            return question_return(request, tokens, swapped)
        return self.layout.question(request, tokens)

    def fork(self, parent: Sequence) -> list[Sequence]:
        """The siblings of a sequence whose prompt is computed: those that found a place run on
        from here; the others wait at the head of the queue and compute the prompt themselves."""
        started = []
        waiting = []
        for index in range(1, parent.request.samples):
            child = Sequence(parent.request.sibling(index), parent.arrived)
            self.ledger.arrived += 1
            fork = getattr(self.layout, "fork", None)
            verdict = fork(parent.request.id, child.request) if fork and self._has_turn() else None
            if verdict and verdict.admitted:
                if verdict.moved:
                    self._copied(child, verdict)
                child.written = parent.written
                self._join(child)
                self.ledger.admitted += 1
                self.ledger.note("fork", child.request.id, slots=child.written)
                started.append(child)
            else:
                waiting.append(child)
        self.waiting.extendleft(reversed(waiting))
        self._judged = False
        return started

    def finish(self, sequence: Sequence) -> None:
        self.leave(sequence)
        self.layout.release(sequence.request.id)
        self.ledger.note("finish", sequence.request.id, slots=sequence.written)

    def leave(self, sequence: Sequence) -> None:
        """It runs no more. Releasing what it holds is up to the caller."""
        at = self.running.index(sequence)
        del self.running[at]
        self.facts.remove(at)
        self._decoding -= at < self._decoding
        self.reconsider()

    @property
    def _chunk(self) -> int:
        return self.config.chunk or 1 << 30

    def _join(self, sequence: Sequence) -> None:
        sequence.admitted = self.ledger.step
        self.running.append(sequence)
        self.facts.add(sequence, self.layout.table.row(sequence.request.id))

    def _has_turn(self) -> bool:
        return len(self.running) < self.config.max_running

    def _decode_oldest(self, budget: int) -> list[Sequence]:
        """One token for each running sequence up to the first that still computes its prompt or
        begins samples with this token, in one call: those that got one. Nobody, where the layout
        cannot do that or room is short."""
        if self._append_each is None:
            return []
        count, self._decoding = self._decoding, 0
        for sequence in self.running[count:]:
            if sequence.tokens - sequence.written != 1 or sequence.forks:
                break
            count += 1
        if not 0 < count <= budget or not self._append_each(self.facts.lines(count)):
            return []
        self._decoding = count
        return self.running[:count]

    def _append(self, sequence: Sequence, count: int) -> bool:
        """Make room for `count` tokens, by preempting others if need be."""
        while True:
            verdict = self.layout.append(sequence.request.id, count)
            if verdict.moved:
                self._moved(sequence, verdict)
            if verdict.admitted:
                return True
            victim = CHOICES[self.config.victim](self.running)
            self._preempt(victim, verdict)
            if victim is sequence:
                return False

    def _preempt(self, victim: Sequence, verdict: Verdict) -> None:
        self.leave(victim)
        self.ledger.preempted += 1
        self.ledger.note("preempt", victim.request.id, verdict, slots=victim.written)
        if not self._swap_out(victim):
            self._recompute(victim, victim.written)
            victim.lost = max(victim.lost, victim.written)
        self.layout.release(victim.request.id)
        victim.written, victim.admitted = 0, -1
        victim.preemptions += 1
        self.waiting.appendleft(victim)
        self._judged = False

    def _recompute(self, sequence: Sequence, tokens: int) -> None:
        """So many tokens of a victim have to be computed again; below 0: they were found."""
        self.ledger.recomputed += tokens
        sequence.recomputed += tokens

    def _swap_out(self, victim: Sequence) -> bool:
        """Copy what is written to host memory; False: by policy, or there is no room."""
        request = victim.request.id
        if self.config.preemption != "swap" or not victim.written:
            return False
        if not getattr(self.layout, "swaps", True):
            return False
        if not self.host.put(request, victim.written):
            return False
        victim.swapped = victim.written
        slots = self.layout.slots(request)
        cut = (
            slice(slots.start, slots.start + victim.written)
            if isinstance(slots, slice)
            else (slots[: victim.written])
        )
        self.layout.note(SwappedOut(request, cut))
        self.ledger.swapped += victim.written
        self.ledger.note("swap_out", request, slots=victim.written)
        return True

    def _enter(self, sequence: Sequence, budget: int) -> tuple[Verdict, int]:
        """Ask for admission: (verdict, tokens of the first chunk)."""
        request = sequence.request
        if sequence.swapped and not (asked := self.question(sequence)).admitted:
            return asked, 0
        verdict = self.layout.admit(request, sequence.tokens)
        if not verdict.admitted:
            return verdict, 0
        there = max(verdict.cached, sequence.swapped)
        count = min(sequence.tokens - there, budget, self._chunk)
        more = self.layout.append(request.id, there - verdict.cached + count)
        assert more.admitted, f"admitted, but the first chunk has no room: {more}"
        if more.moved:
            verdict = verdict._replace(moved=verdict.moved + more.moved)
        return verdict, count

    def _start(self, sequence: Sequence, verdict: Verdict) -> None:
        self._join(sequence)
        self.ledger.admitted += 1
        self.ledger.note("admit", sequence.request.id, verdict)
        if verdict.moved:
            self._moved(sequence, verdict)
        found = min(verdict.cached, sequence.lost) - sequence.swapped
        if found > 0:
            self._recompute(sequence, -found)
        if sequence.swapped:
            self._swap_in(sequence, verdict)
        else:
            sequence.written = verdict.cached
        if verdict.cached:
            self.ledger.cached += verdict.cached
            self.ledger.note("share", sequence.request.id, slots=verdict.cached)

    def _swap_in(self, sequence: Sequence, verdict: Verdict) -> None:
        request = sequence.request.id
        self.host.drop(request)
        # Noted even when all of it was found in memory: the host's copy must go.
        start = min(verdict.cached, sequence.swapped)
        self.layout.note(SwappedIn(request, start, sequence.swapped))
        self.ledger.swapped += sequence.swapped - start
        self.ledger.note("swap_in", request, slots=sequence.swapped)
        sequence.written = max(sequence.swapped, verdict.cached)
        sequence.swapped = 0

    def _turn_down(self, sequence: Sequence, verdict: Verdict, at: int) -> bool:
        """Refuse the request at this place of the queue. True when it left the queue."""
        self._refuse(sequence, verdict)
        if verdict.kind == NEVER or self.config.queue == "refuse":
            del self.waiting[at]
            self._drop(sequence, "it can never fit" if verdict.kind == NEVER else "refused")
            return True
        if at == 0:
            self.head = verdict
            if self.config.queue != "skip" and getattr(self.layout, "steadfast", False):
                self._refused = sequence, verdict
        return False

    def _still_refused(self, sequence: Sequence) -> Verdict | None:
        """The verdict that stands. Nothing was given back since, only taken: too little free memory
        still is too little, and where as much is free the holes are the same ones."""
        if self._refused is None or self._refused[0] is not sequence:
            return None
        verdict = self._refused[1]
        same = verdict.kind == CAPACITY or verdict.free == self.layout.free
        return verdict if same else None

    def _judge_queue(self) -> None:
        """First verdicts for those behind a head that memory refused."""
        if self._judged:
            return
        self._judged = True
        for sequence in [s for s in self.waiting if not s.first_refusal]:
            verdict = self._standing(sequence)
            self._refuse(sequence, verdict)
            if verdict.kind == NEVER:
                self.waiting.remove(sequence)
                self._drop(sequence, "it can never fit")

    def _standing(self, sequence: Sequence) -> Verdict:
        """The verdict of a request that is not at the head."""
        verdict = self.question(sequence)
        return verdict._replace(kind=QUEUED) if verdict.kind == ADMITTED else verdict

    def _refuse(self, sequence: Sequence, verdict: Verdict) -> None:
        if sequence.first_refusal:
            return
        sequence.first_refusal = verdict.kind
        self.ledger.refused[verdict.kind] += 1
        self.ledger.note("refuse", sequence.request.id, verdict)

    def _drop(self, sequence: Sequence, why: str) -> None:
        self.ledger.dropped += 1
        self.ledger.turned_away.append(sequence.request.id)
        self.host.drop(sequence.request.id)
        self.ledger.note("drop", sequence.request.id, text=why)

    def _moved(self, sequence: Sequence, verdict: Verdict) -> None:
        if self.layout.copies_on_write:
            self._copied(sequence, verdict)
            return
        self.ledger.slots_moved += verdict.moved
        self.ledger.note("move", sequence.request.id, verdict, slots=verdict.moved)

    def _copied(self, sequence: Sequence, verdict: Verdict) -> None:
        self.ledger.copied += verdict.moved
        self.ledger.note("copy", sequence.request.id, verdict, slots=verdict.moved)
