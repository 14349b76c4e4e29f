"""What was shown at each step, kept: a history a lane, and the small facts beside the maps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import replace
from typing import NamedTuple

from kvviz.engine.engine import Engine
from kvviz.engine.history import BUDGET_BYTES, KEYFRAME_STEPS, History
from kvviz.engine.lanes import Lanes
from kvviz.engine.orders import Orders
from kvviz.live.hues import Follower, HueBook
from kvviz.live.published import WINDOW, LaneView, Published, events_between
from kvviz.records import QUEUED, Snapshot
from kvviz.workloads.stream import Scaling

_DECODED = 3  # steps decoded for a column of a short run, at most
_ORDERS = 12  # such a part of the budget is for block tables
_PARTS = 4  # the charts' window moves by such a part of it, not with every step


class _Lane(NamedTuple):
    tokens_per_second: float
    checks_made: int
    checks_failed: int
    checked_step: int


class _Facts(NamedTuple):
    lanes: dict[str, _Lane]
    compared: int
    equal: int
    stream_hash: str
    drawn: int
    scaling: Scaling


class Moment(NamedTuple):
    """A kept step as a recording takes it. checks: made, failed, the step of the last one;
    hues: of its requests."""

    step: int
    shots: dict[str, Snapshot]
    checks: dict[str, tuple[int, int, int]]
    compared: int
    equal: int
    drawn: int
    hues: dict[int, int]


class Past:
    """Belongs to the thread that steps the lanes. `budget_bytes` is for each lane."""

    def __init__(self, names: list[str], budget_bytes: int = BUDGET_BYTES) -> None:
        self.hues = HueBook()
        orders = budget_bytes // _ORDERS
        self.histories = {name: History(budget_bytes - orders) for name in names}
        self.orders = {name: Orders(orders) for name in names}
        self._facts: deque[_Facts] = deque()
        self._follower = Follower(self.hues)

    @property
    def first(self) -> int:
        """The oldest step that every lane keeps; -1 when there is none."""
        return max(history.first for history in self.histories.values())

    @property
    def last(self) -> int:
        return next(iter(self.histories.values())).last

    @property
    def nbytes(self) -> int:
        kept = sum(history.nbytes for history in self.histories.values())
        return kept + sum(orders.nbytes for orders in self.orders.values())

    def add(self, lanes: Lanes) -> dict[str, Snapshot]:
        """Keep the step that was just made; the snapshots that were taken for it."""
        shots = {name: engine.snapshot() for name, engine in lanes.engines.items()}
        self.hues.update(list(shots.values()))
        for name, shot in shots.items():
            self.histories[name].add(shot)
            layout = lanes.engines[name].layout
            self.orders[name].add(shot.step, layout, shot.seq_id.tolist(), shot.seq_used)
        for orders in self.orders.values():
            orders.forget(self.first)
        self._facts.append(_facts(lanes))
        while len(self._facts) > self.last - self.first + 1:
            self._facts.popleft()
        return shots

    def prepend(self, earlier: Past) -> None:
        """Take the steps of another past of the same run, which end where these begin; the
        colours stay this one's."""
        if earlier.last != self.first - 1:
            return  # the oldest of these were dropped since: the others would be, too
        for name, history in self.histories.items():
            history.prepend(earlier.histories[name])
        for name, orders in self.orders.items():
            orders.prepend(earlier.orders[name])
        self._facts.extendleft(reversed(earlier._facts))
        while len(self._facts) > self.last - self.first + 1:
            self._facts.popleft()

    def pass_by(self, lanes: Lanes) -> None:
        """A step that is not kept: only the colours follow it. Before the first step that is."""
        assert not self._facts, "a step cannot be left out once others are kept"
        self._follower.step(lanes)

    def shots(self, step: int) -> dict[str, Snapshot]:
        """The snapshots of a step, which is brought into what is kept."""
        step = min(max(step, self.first), self.last)
        return {name: history.at(step) for name, history in self.histories.items()}

    def moment(self, step: int) -> Moment:
        """What is kept of this step."""
        facts = self._facts[step - self.last - 1]
        checks = {
            name: (lane.checks_made, lane.checks_failed, lane.checked_step)
            for name, lane in facts.lanes.items()
        }
        shots = self.shots(step)
        hues = self.hues.of(list(shots.values()))
        return Moment(step, shots, checks, facts.compared, facts.equal, facts.drawn, hues)

    def publication(self, lanes: Lanes, step: int, newest: Published) -> Published:
        """What `newest` was at this step (the nearest that is kept)."""
        shots = self.shots(step)
        step = next(iter(shots.values())).step
        facts = self._facts[step - self.last - 1]
        views = {
            name: _view(lanes.engines[name], shot, facts.lanes[name], self._end(step))
            for name, shot in shots.items()
        }
        return replace(
            newest,
            step=step,
            looking=True,
            lanes=views,
            compared=facts.compared,
            equal=facts.equal,
            stream_hash=facts.stream_hash,
            drawn=facts.drawn,
            scaling=facts.scaling,
            hues=self.hues.of(list(shots.values())),
        )

    def sample(self, count: int, lane: str) -> list[tuple[Snapshot, dict[int, int]]]:
        """Up to so many steps of a lane, evenly spaced, oldest first, with their colours: of a
        long run those that are kept whole, for the others take a millisecond each."""
        history = self.histories[lane]
        steps: list[int] = [s for s in history.keyframes if s >= self.first]
        if len(steps) * KEYFRAME_STEPS <= count * _DECODED:
            steps = list(range(self.first, self.last + 1))
        every = -(-len(steps) // count)
        shots = [history.at(step) for step in steps[(len(steps) - 1) % every :: every]]
        return [(shot, self.hues.of([shot])) for shot in shots]

    def refusal(self, lanes: Lanes, step: int, after: bool) -> int:
        """The next step (or the one before) that shows a refusal for want of memory in some
        lane; `step` itself when there is none."""
        found = refusal_steps(lanes, self.first, self.last)
        at = bisect_right(found, step) if after else bisect_left(found, step) - 1
        return found[at] if 0 <= at < len(found) else step

    def _end(self, step: int) -> int:
        """The last step of the charts' window: the same one for many steps."""
        part = WINDOW // _PARTS
        return min(self.last, max(WINDOW, (step // part + 2) * part))


def refusal_steps(lanes: Lanes, first: int, last: int) -> list[int]:
    """Steps [first, last] whose picture shows a new refusal by memory, ascending."""
    return sorted(
        {
            event.step + 1
            for engine in lanes.engines.values()
            for event in engine.recorder.events
            if event.kind == "refuse"
            and event.verdict != QUEUED
            and first <= event.step + 1 <= last
        }
    )


def _view(engine: Engine, shot: Snapshot, facts: _Lane, end: int) -> LaneView:
    return LaneView(
        shot,
        engine.recorder.series(WINDOW, before=end),
        events_between(engine, "refuse", shot.step - WINDOW, shot.step),
        events_between(engine, "move", shot.step - WINDOW, end),
        *facts,
        later=events_between(engine, "refuse", shot.step, end),
    )


def _facts(lanes: Lanes) -> _Facts:
    stream, comparison = lanes.stream, lanes.comparison
    return _Facts(
        {
            name: _Lane(
                engine.recent_speed(),
                engine.checks_made,
                engine.checks_failed,
                engine.checked_step,
            )
            for name, engine in lanes.engines.items()
        },
        comparison.compared,
        comparison.equal,
        stream.hash,
        stream.drawn,
        stream.scaling,
    )
