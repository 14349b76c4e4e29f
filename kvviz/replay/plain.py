"""The plain way: the engine itself, dry, one step after the other. It serves every layout.

Steps in which nobody is served and nobody waits are leapt over, up to the next arrival.
"""

from __future__ import annotations

import time
from collections import deque

import numpy as np

from kvviz.caches.layouts import LAYOUTS
from kvviz.caches.paged import PagedLayout
from kvviz.config import RunConfig
from kvviz.engine.engine import Engine
from kvviz.engine.forward import DryForward
from kvviz.engine.recorder import Recorder
from kvviz.metrics import never_used, paper_breakdown
from kvviz.records import REFUSALS, Event, Snapshot
from kvviz.replay.load import Load
from kvviz.replay.result import FIELDS, POINTS, SUMS, LaneResult, Watch

_LOOK = 32  # steps between two looks at the clock


class PlainLane:
    """One lane under way."""

    def __init__(
        self,
        load: Load,
        config: RunConfig,
        layout: str,
        slot_bytes: int,
        *,
        why: str = "",
        events: bool = False,
    ) -> None:
        self.load, self.config, self.why = load, config, why
        self.engine = Engine(
            layout,
            LAYOUTS[layout](config, slot_bytes),
            DryForward(),
            config,
            slot_bytes,
            Recorder(steps=1),
        )
        self.seconds = 0.0
        self.kept: list[Event] | None = [] if events else None
        self._cursor = 0
        self._first = np.full(load.rows, -1, np.int64)
        self._done = np.full(load.rows, -1, np.int64)
        self._sums = np.zeros(len(SUMS))
        self._busy = np.zeros(config.engine.max_running + 1, np.int64)
        self._samples: list[tuple[int, ...]] = []
        self._stride = 1
        # Steady compaction saves up with every step, also an idle one
        self._leaps = config.contiguous.compaction != "steady"

    @property
    def step(self) -> int:
        return self.engine.step_count

    @property
    def done(self) -> bool:
        return self._cursor == self.load.rows and self.engine.idle

    def serve(self, until: int | None = None, watch: Watch | None = None) -> bool:
        """See `fast.FastLane.serve`."""
        goes_on = True
        while not self.done and goes_on and (until is None or self.step < until):
            began = time.perf_counter()
            for _ in range(_LOOK):
                if self.done or (until is not None and self.step >= until):
                    break
                self._go(until)
            self.seconds += time.perf_counter() - began
            if watch:
                goes_on = watch(self.engine.finished + self.engine.scheduler.ledger.dropped)
        return goes_on

    def result(self) -> LaneResult:
        c = self.engine.counters()
        layout = self.engine.layout
        return LaneResult(
            "steps",
            self.why,
            layout.capacity,
            getattr(layout, "usable", layout.capacity),
            self.step,
            self.seconds,
            {
                "admitted": c.admitted,
                "finished": c.finished,
                "preempted": c.preempted,
                "dropped": c.dropped,
                "recomputed": c.recomputed,
                "cached": c.cached,
                "moved": c.slots_moved,
                "passes": c.passes,
                "generated": c.generated,
                "refused": [c.refused[verdict] for verdict in REFUSALS],
                "paged": layout.paged,
            },
            self._first,
            self._done,
            self._sums,
            self._busy,
            np.array(self._samples, np.int64).reshape(-1, len(FIELDS)),
        )

    def events(self) -> list[Event]:
        return self.kept or []

    def snapshot(self, slot_bytes: int) -> Snapshot:
        return self.engine.snapshot()

    def _go(self, until: int | None) -> None:
        """One step, or all idle steps up to the next arrival."""
        engine, load = self.engine, self.load
        if engine.idle and self._leaps:
            ahead = int(load.arrival[self._cursor])
            ahead = ahead if until is None else min(ahead, until)
            if ahead > engine.step_count:
                self._record(engine.step_count, ahead)
                engine.step_count = ahead
                return
        step = engine.step_count
        end = int(np.searchsorted(load.arrival, step, side="right"))
        engine.submit([load.request(row) for row in range(self._cursor, end)])
        self._cursor = end
        engine.step()
        self._follow(engine.recorder.events)
        self._record(step, step + 1)

    def _follow(self, events: deque[Event]) -> None:
        for event in events:
            if event.request >= self.load.rows:
                continue  # a further sample of a request
            if event.kind == "admit" and self._first[event.request] < 0:
                self._first[event.request] = event.step
            elif event.kind == "finish":
                self._done[event.request] = event.step
        if self.kept is not None:
            self.kept += events
        events.clear()

    def _record(self, step: int, until: int) -> None:
        s, layout = self.engine.scheduler, self.engine.layout
        written = sum(sequence.written for sequence in s.running)
        written -= getattr(layout, "shared_slots", 0)
        now = (layout.free, layout.admissible, written, len(s.running), len(s.waiting))
        self._sums += np.array(now, float) * (until - step)
        self._busy[len(s.running)] += until - step
        at = -(-step // self._stride) * self._stride
        waste = self._waste() if at < until else ()
        while at < until:
            self._sample((at, *now, self.engine.generated, *waste))
            at = (at // self._stride + 1) * self._stride

    def _waste(self) -> tuple[int, int]:
        """Internal and external, as in `paper_breakdown`. In blocks neither is a question of
        which are held, so no map is made."""
        layout = self.engine.layout
        if isinstance(layout, PagedLayout):
            _, life, _, _, lines = self.engine.scheduler.facts.columns()
            _, held = layout.sizes_each(lines)
            return never_used(life, held), layout.free % layout.grain
        parts = paper_breakdown(self.engine.snapshot(), self._ask())
        return parts.internal, parts.external

    def _sample(self, row: tuple[int, ...]) -> None:
        if len(self._samples) == POINTS:
            del self._samples[1::2]
            self._stride *= 2
            if row[0] % self._stride:
                return
        self._samples.append(row)

    def _ask(self) -> int:
        """Slots that the next request needs: the head of the queue, else who arrives next."""
        layout, waiting = self.engine.layout, self.engine.scheduler.waiting
        if waiting:
            return layout.question(waiting[0].request, waiting[0].tokens).need
        if self._cursor < self.load.rows:
            request = self.load.request(self._cursor)
            return layout.question(request, request.prompt_len).need
        return 1
