"""One lane: a layout, a scheduler, and a forward that is handed in, real or dry.

arrivals -> schedule (admit, grow, preempt, compact) -> place -> journal of moves
         -> forward(batch, journal), once a part -> finish or continue -> record
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kvviz.caches.layout import Layout, Places, extras_of
from kvviz.config import RunConfig
from kvviz.engine.forward import Chunk, DryForward, Forward, cut
from kvviz.engine.recorder import Recorder
from kvviz.engine.running import running_columns
from kvviz.engine.schedule import Schedule, chunks
from kvviz.engine.scheduler import Scheduler
from kvviz.engine.sequence import Sequence
from kvviz.errors import KvvizError
from kvviz.records import SIBLINGS, WAITING_SHOWN, Counters, Event, Request, Snapshot, Verdict


class Fault(NamedTuple):
    """What stopped a lane, in words, and the step in which it did."""

    step: int
    text: str


class Engine:
    """`step()` serves one iteration of continuous batching on this lane's memory."""

    def __init__(
        self,
        name: str,
        layout: Layout,
        forward: Forward,
        config: RunConfig,
        slot_bytes: int,
        recorder: Recorder,
    ) -> None:
        self.name = name
        self.layout = layout
        self.forward = forward
        self.config = config
        self.slot_bytes = slot_bytes
        self.recorder = recorder
        self.scheduler = Scheduler(layout, config.engine)
        self.step_count = 0
        self.seconds = 0.0
        self.generated = 0
        self.finished = 0
        self.passes = 0
        self.checks_made = self.checks_failed = 0
        self.checked_step = -1
        self.hurried = False  # nobody sees the steps that are made: check the map with the last
        self.outputs: dict[int, bytes] = {}
        self.fault: Fault | None = None
        self._shot: Snapshot | None = None
        self._places = layout if isinstance(layout, Places) else None
        self._pace: deque[tuple[int, float]] = deque(maxlen=128)

    @property
    def outstanding(self) -> int:
        """Requests in this lane, waiting or running."""
        return len(self.scheduler.waiting) + len(self.scheduler.running)

    @property
    def idle(self) -> bool:
        return self.outstanding == 0

    def submit(self, requests: list[Request]) -> None:
        for request in requests:
            self.scheduler.submit(request, self.step_count)

    def step(self) -> None:
        """One iteration. Time spent is added to `seconds`."""
        began = time.perf_counter()
        schedule = self.scheduler.schedule(self.step_count)
        if type(self.forward) is DryForward and self._places is None:
            self._advance_dry(schedule)
        else:
            rows = schedule.all_rows()
            self._advance(rows, self._run(chunks(rows)))
        spent = time.perf_counter() - began
        self.seconds += spent
        self._pace.append((self.generated, spent))
        self._record()
        self.step_count += 1
        if self._check_due():
            self.check_map()

    def stop(self, step: int, error: Exception) -> None:
        """This lane can't go on after what happened in this step; its last snapshot stays."""
        said = str(error) if isinstance(error, KvvizError) else f"{type(error).__name__}: {error}"
        self.fault = Fault(step, said)
        self.recorder.events.append(Event(step, "change", text=f"stopped: {said}"))
        self.step_count = step + 1

    def stand(self) -> None:
        """A step of the clock in which a stopped lane does nothing."""
        self.step_count += 1

    def shorten(self, request_id: int) -> bool:
        """The request ends with its next token; False when it is not here."""
        for sequence in (*self.scheduler.running, *self.scheduler.waiting):
            if sequence.request.id == request_id:
                self.scheduler.shorten(sequence)
                return True
        return False

    def reconfigure(self, config: RunConfig) -> None:
        """Take settings that need no restart."""
        self.config = config
        self.layout.reconfigure(config)
        self.scheduler.reconfigure(config.engine)

    def check_map(self) -> None:
        """Compare the map rebuilt from the tensors with the bookkeeping."""
        self.layout.check()
        # A sequence that finished in this step has freed slots that the journal still holds.
        self.forward([], self.layout.take_journal())
        verdict = self.forward.check()
        if verdict is None:
            return
        self.checks_made += 1
        self.checks_failed += not verdict
        self.checked_step = self.step_count

    def recent_speed(self) -> float:
        """Tokens generated a second of this lane's own time, over the last 128 steps."""
        seconds = sum(spent for _, spent in self._pace)
        return (self._pace[-1][0] - self._pace[0][0]) / seconds if seconds else 0.0

    def counters(self) -> Counters:
        s = self.scheduler
        book = s.ledger
        return Counters(
            arrived=book.arrived,
            admitted=book.admitted,
            finished=self.finished,
            preempted=book.preempted,
            dropped=book.dropped,
            recomputed=book.recomputed,
            generated=self.generated,
            slots_moved=book.slots_moved,
            move_seconds=self.forward.move_seconds,
            running=len(s.running),
            waiting=len(s.waiting),
            refused=dict(book.refused),
            cached=book.cached,
            copied=book.copied,
            swapped=book.swapped,
            bypassed=book.bypassed,
            passes=self.passes,
        )

    def snapshot(self) -> Snapshot:
        """The memory as it is after the last step; of a stopped lane as it was shown last."""
        if self.fault is not None and self._shot is not None:
            return replace(self._shot, step=self.step_count)
        self._shot = self._look()
        return self._shot

    def close(self) -> None:
        self.forward.close()

    def _look(self) -> Snapshot:
        s, layout = self.scheduler, self.layout
        waiting = [w for w, _ in zip(s.waiting, range(WAITING_SHOWN), strict=False)]
        return Snapshot(
            self.step_count,
            self.seconds,
            layout.capacity,
            layout.grain,
            layout.paged,
            self.slot_bytes,
            layout.admissible,
            layout.columns(),
            **running_columns(s.running, s.facts, layout),
            waiting_id=np.array([w.request.id for w in waiting], np.int64),
            waiting_need=np.array([layout.need(w.request, w.tokens) for w in waiting], np.int64),
            head=self._head(),
            counters=self.counters(),
            dropped_id=np.array(s.ledger.turned_away, np.int64),
            extras={**extras_of(layout), **self._resident()},
            single=getattr(layout, "single", False),
        )

    def _resident(self) -> dict[str, float]:
        """Memory that the system says is behind the pool, as of the last check of the map."""
        found = getattr(self.forward, "resident_bytes", None)
        return {} if found is None else {"resident_bytes": found}

    def _head(self) -> Verdict | None:
        """The head that memory refused, asked again: requests that finished in this very step
        may have made room, and a picture must not contradict itself."""
        s = self.scheduler
        if s.head is None or not s.waiting:
            return None
        return s.question(s.waiting[0])

    def _run(self, batch: list[Chunk]) -> np.ndarray:
        """Tokens of the batch, in its order: one pass, or one for each part it was placed in."""
        parts = [batch] if self._places is None else cut(batch, self._places.place())
        if self.config.engine.check_every and type(self.forward) is not DryForward:
            self.layout.check()  # a wrong address would send the kernels anywhere
        journal = self.layout.take_journal()
        if not batch:
            return self.forward([], journal)
        self.passes += len(parts)
        first, *others = parts
        tokens = [self.forward(first, journal), *(self.forward(part, []) for part in others)]
        return np.concatenate(tokens)

    def _advance(self, rows: list[tuple[Sequence, int]], tokens: np.ndarray | list[int]) -> None:
        at = 0
        for sequence, count in rows:
            sequence.written += count
            if sequence.written < sequence.tokens:
                continue
            forks = self.scheduler.fork(sequence) if sequence.forks else []
            first, at = at, at + (sequence.request.samples if sequence.forks else 1)
            self._take_token(sequence, int(tokens[first]))
            for child in forks:
                nth = (child.request.id - sequence.request.id) // SIBLINGS
                self._take_token(child, int(tokens[first + nth]))

    def _advance_dry(self, schedule: Schedule) -> None:
        """`_advance` and `_run` without a model, and without a batch or tokens for nobody."""
        oldest, rows = schedule
        self.layout.take_journal()
        self.passes += bool(oldest or rows)
        ended = []
        for sequence in oldest:
            written = sequence.written = sequence.written + 1
            sequence.tokens = written + 1
            if written >= sequence.life:
                ended.append(sequence)
        self.generated += len(oldest)
        for sequence in ended:
            self._finish(sequence)
        for sequence, count in rows:
            sequence.written += count
            if sequence.written < sequence.tokens:
                continue
            forks = self.scheduler.fork(sequence) if sequence.forks else []
            for each in (sequence, *forks):
                self._take_token(each, 0)

    def _take_token(self, sequence: Sequence, token: int) -> None:
        sequence.tokens += 1
        self.generated += 1
        if self._ended(sequence, token):
            self._finish(sequence)

    def _ended(self, sequence: Sequence, token: int) -> bool:
        if sequence.generated >= sequence.request.output_len:
            return True
        return self.config.engine.ends == "model" and token in self.forward.end_tokens

    def _finish(self, sequence: Sequence) -> None:
        self.finished += 1
        self.scheduler.finish(sequence)
        output = self.forward.finish(sequence.request.id)
        if output is not None:
            self.outputs[sequence.request.id] = output

    def _record(self) -> None:
        s, layout = self.scheduler, self.layout
        events = s.ledger.take_events()
        for event in events:
            if event.kind == "drop":
                self.forward.forget(event.request)
        # What several sequences share counts once
        shared = getattr(layout, "shared_slots", 0)
        written = sum([sequence.written for sequence in s.running]) - shared
        self.recorder.add(
            (
                self.step_count,
                layout.free,
                layout.admissible,
                written,
                len(s.running),
                len(s.waiting),
                self.generated,
                s.head.need if s.head else 0,
            ),
            events,
        )

    def _check_due(self) -> bool:
        every = self.config.engine.check_every
        return every > 0 and self.step_count % every == 0 and not self.hurried
