"""A thread that steps lanes for one viewer: start, pause, one step, speed, new settings.

The thread alone touches the lanes. Callers put commands into a queue and read `latest()`, an
immutable Published. An error in the thread becomes a state with a message; the last picture
stays. A runner that nobody looks at falls asleep, and ends after a while.
"""

from __future__ import annotations

import logging
import math
import queue
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import TypeVar

from kvviz.config import RunConfig
from kvviz.engine.lanes import Lanes
from kvviz.errors import KvvizError
from kvviz.live.earlier import Earlier
from kvviz.live.past import Past
from kvviz.live.published import Published, view_lane
from kvviz.records import DeviceMemory, Snapshot

log = logging.getLogger(__name__)

STARTING, RUNNING, PAUSED, ASLEEP, FAILED, CLOSED = (
    "starting",
    "running",
    "paused",
    "asleep",
    "failed",
    "closed",
)
FLAT_OUT = 0.0
THREAD_NAME = "kvviz-lanes"
REPLAY_KEPT = 600  # steps of a replayed run that can be looked at
_PUBLISH_SECONDS = 0.05
_REPLAY_SHOWN_SECONDS = 0.5
_LOOK_BACK_SECONDS = 0.01  # of work on earlier steps at a time

Command = Callable[[], None]
Answer = TypeVar("Answer")


class LiveRunner:
    """`build(config)` makes the lanes; it runs in the thread, for it may load torch.

    The first `head_start` steps are made flat out: an empty pool has nothing to show. With
    `replay_to` the run is made anew up to that step and stands there: without tensors where that
    leads to the same maps (with engine.ends = mix). Of a long dry replay the steps behind are
    made once it stands there (`live.earlier`).
    """

    def __init__(
        self,
        config: RunConfig,
        build: Callable[[RunConfig], Lanes],
        *,
        device: Callable[[], str] = lambda: "",
        memory: Callable[[], DeviceMemory | None] = lambda: None,
        speed: float = 10.0,
        head_start: int = 0,
        replay_to: int | None = None,
        sleep_after: float = 20.0,
        end_after: float = 900.0,
    ) -> None:
        self.token = secrets.token_urlsafe(24)
        self.replayed = replay_to is not None and not config.dry and config.engine.ends == "mix"
        self.config = config.replace({"dry": True}) if self.replayed else config
        self.speed = speed
        self._build, self._device, self._memory = build, device, memory
        self._head_start = head_start
        self._sleep_after, self._end_after = sleep_after, end_after
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._lanes: Lanes | None = None
        self._past = Past([])
        self._earlier: Earlier | None = None
        self._shots: dict[str, Snapshot] = {}
        self._changes: tuple[int, ...] = ()
        self._state = STARTING
        self._closing = threading.Event()
        self._paused = replay_to is not None
        self._replay_to = replay_to or 0
        self._single_steps = 0
        self._message = ""
        self._seen = time.monotonic()
        self._latest = Published(0, 0, STARTING, "", config, "")
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
        self._thread.start()

    # What callers may do, from any thread

    def latest(self) -> Published:
        """The newest publication. Looking keeps the runner awake."""
        self._seen = time.monotonic()
        if self._state == ASLEEP:
            self._wake.set()
        return self._latest

    @property
    def paused(self) -> bool:
        return self._paused

    @property
    def alive(self) -> bool:
        """False once it was closed or ended by itself."""
        return not self._closing.is_set()

    def start(self) -> None:
        self._paused = False
        self._do(lambda: None)

    def pause(self) -> None:
        self._paused = True
        self._do(lambda: None)

    def step(self) -> None:
        """Pause, and make one step."""
        self._paused = True
        self._do(self._one_more)

    def set_speed(self, steps_per_second: float) -> None:
        """Steps a second, or FLAT_OUT."""
        if steps_per_second != self.speed:
            self.speed = steps_per_second
            self._wake.set()

    def apply(self, config: RunConfig) -> list[str]:
        """Take new settings: at the next arrival where that can be, else by a restart.

        Returns the settings that made a restart necessary.
        """
        same = config.replace({"dry": True}) if self.replayed else config
        live, restart = self.config.differences(same)
        config = config if restart else same
        if not live and not restart:
            return []
        self.config = config
        if restart or self._lanes is None:
            self.replayed = False
            self._do(lambda: self._restart(config))
        else:
            self._do(lambda: self._reconfigure(config))
        return restart

    def reset(self) -> None:
        """Back to step 0 with the settings of now; also the way out of a failure."""
        config = self.config
        self._do(lambda: self._restart(config))

    def ask(self, question: Callable[[Lanes, Past, Published], Answer]) -> Future[Answer]:
        """Have the thread answer between two steps: it alone may read lanes and past. What the
        answer is made of must be copies. Fails with KvvizError when nothing runs yet."""
        answer: Future[Answer] = Future()

        def act() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                if self._lanes is None:
                    raise KvvizError("Nothing runs yet. Wait, or restart the run.")
                answer.set_result(question(self._lanes, self._past, self._latest))
            except Exception as error:  # it is the asker's, not the run's
                answer.set_exception(error)

        self._do(act)
        return answer

    def past(self, step: int) -> Future[Published]:
        """What was shown at this step, or at the nearest that is kept."""

        def look(lanes: Lanes, past: Past, newest: Published) -> Published:
            if step < past.first:
                self._look_back(math.inf)
            return past.publication(lanes, step, self._latest)

        return self.ask(look)

    def refusal(self, step: int, after: bool) -> Future[int]:
        """The next step, or the one before, that shows a refusal for want of memory."""

        def seek(lanes: Lanes, past: Past, newest: Published) -> int:
            if not after:
                self._look_back(math.inf)
            return past.refusal(lanes, step, after)

        return self.ask(seek)

    def finish(self, request: int) -> None:
        """End this request now, in every lane that has it."""
        self._do(lambda: self._disturb(lambda lanes: lanes.finish(request)))

    def add(self, slots: int) -> None:
        """A request of so many slots arrives now, in every lane."""
        self._do(lambda: self._disturb(lambda lanes: lanes.add(slots) >= 0))

    def onto_tensors(self) -> None:
        """A replayed run: make it again on tensors, up to the step where it stands."""
        if not self.replayed:
            return
        self.replayed = False
        config = self.config = self.config.replace({"dry": False})
        self._paused = True

        def act() -> None:
            self._restart(config, self._lanes.step_count if self._lanes else 0)

        self._do(act)

    def close(self) -> None:
        """Ask the thread to end and free the pools. Does not wait for it."""
        self._closing.set()
        self._wake.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the thread. Never call it on an event loop."""
        self._thread.join(timeout)

    # The thread

    def _run(self) -> None:
        self._guard(lambda: self._restart(self.config, self._replay_to))
        published = 0.0
        due = time.monotonic()
        while self.alive:
            self._guard(self._obey)
            self._guard(self._look_back)
            if not self._may_step():
                self._rest()
                due = time.monotonic()
                continue
            self._guard(self._advance)
            now = time.monotonic()
            if self._state != FAILED and (self._slow() or now - published >= _PUBLISH_SECONDS):
                self._guard(self._publish)
                published = now
            due = self._pace(due)
        self._guard(self._release)
        self._show(CLOSED)

    def _guard(self, act: Command) -> None:
        """Run `act`; what goes wrong is shown, and the last picture stays."""
        try:
            act()
        except KvvizError as error:
            self._fail(str(error))
        except Exception as error:  # the thread must outlive any fault of a step
            log.exception("a lane failed")
            self._fail(
                f"The engine stopped at step {self._latest.step}: "
                f"{type(error).__name__}: {error}. Restart it to go on."
            )

    def _obey(self) -> None:
        while not self._commands.empty():
            self._commands.get_nowait()()

    def _may_step(self) -> bool:
        if self._state == FAILED or self._lanes is None:
            return False
        unseen = time.monotonic() - self._seen
        if self._single_steps or not (self._paused or unseen > self._sleep_after):
            if self._paused:
                self._state = RUNNING  # one step: the picture stays that of a paused run
            else:
                self._show(RUNNING)  # at once, for the next publication may be some steps away
            return True
        if self._latest.step != self._lanes.step_count:  # the last steps were not shown yet
            self._guard(self._publish)
        self._show(PAUSED if unseen <= self._sleep_after else ASLEEP)
        return False

    def _slow(self) -> bool:
        """Is there time to show every step?"""
        return self._paused or (self.speed != FLAT_OUT and 1 / self.speed >= _PUBLISH_SECONDS)

    def _rest(self) -> None:
        """Wait for a command or a viewer; end when nobody has looked for long."""
        self._wake.wait(0.0 if self._earlier else 1.0)
        self._wake.clear()
        if time.monotonic() - self._seen > self._end_after:
            self._closing.set()

    def _advance(self) -> None:
        assert self._lanes is not None
        self._single_steps = max(0, self._single_steps - 1)
        self._lanes.step()
        self._shots = self._past.add(self._lanes)

    def _look_back(self, seconds: float = _LOOK_BACK_SECONDS) -> None:
        """Work on the steps behind a replayed one; once they are all there, they can be seen."""
        earlier, self._earlier = self._earlier, None
        if earlier is None:
            return
        if not earlier.work(seconds):
            self._earlier = earlier
            return
        self._past.prepend(earlier.past)
        self._latest = replace(
            self._latest, version=self._latest.version + 1, first=self._past.first
        )

    def _one_more(self) -> None:
        self._single_steps += 1

    def _pace(self, due: float) -> float:
        """Sleep until the next step is due; returns when that is."""
        lanes = self._lanes
        if self.speed == FLAT_OUT or (lanes and lanes.step_count < self._head_start):
            return time.monotonic()
        due = max(due + 1 / self.speed, time.monotonic() - 0.1)
        left = due - time.monotonic()
        if left > 0 and self._wake.wait(left):
            self._wake.clear()
            return time.monotonic()  # woken early: the next step counts from here
        return due

    def _restart(self, config: RunConfig, replay_to: int = 0) -> None:
        self._release()
        self._state = STARTING
        self._message = ""
        self._single_steps = 0
        self._lanes = self._build(config)
        self._lanes.isolated = True
        self._past = Past(list(self._lanes.engines))
        self._changes = ()
        self._shots = {}
        self._replay(replay_to)
        self._publish()

    def _replay(self, last: int) -> None:
        """Step flat out to this step; the newest `REPLAY_KEPT` steps are kept, those of a long
        dry run later."""
        lanes = self._lanes
        assert lanes is not None
        shown = time.monotonic()
        kept = last - REPLAY_KEPT
        later = kept > 0 and lanes.config.dry
        if later:
            lanes.hurry(True)
        while True:
            if lanes.step_count > (last - 1 if later else kept):
                self._shots = self._past.add(lanes)
            else:
                self._past.pass_by(lanes)
            if lanes.step_count >= last or not self.alive:
                break
            lanes.step()
            if time.monotonic() - shown > _REPLAY_SHOWN_SECONDS:
                shown = time.monotonic()
                self._message = f"Replaying: step {lanes.step_count:,} of {last:,}."
                self._latest = replace(
                    self._latest,
                    version=self._latest.version + 1,
                    state=STARTING,
                    message=self._message,
                )
                self._message = ""
        if later and self.alive:
            lanes.hurry(False)
            self._earlier = Earlier(self._build, lanes.config, kept + 1, last)

    def _reconfigure(self, config: RunConfig) -> None:
        if self._lanes is None:
            self._restart(config)
            return
        self._lanes.reconfigure(config)
        self._changes = (*self._changes, self._lanes.step_count)
        self._shots = {}  # a verdict may be another one now
        self._publish()

    def _disturb(self, act: Callable[[Lanes], bool]) -> None:
        """Something that neither settings nor seed bring about."""
        if self._lanes is None or not act(self._lanes):
            return
        self._changes = (*self._changes, self._lanes.step_count)
        self._shots = {}
        self._publish()

    def _publish(self) -> None:
        lanes = self._lanes
        if lanes is None:
            return
        views = {name: view_lane(lanes, name, self._shots.get(name)) for name in lanes.engines}
        self._latest = Published(
            self._latest.version + 1,
            lanes.step_count,
            self._shown_state(),
            self._message,
            lanes.config,
            self._device(),
            views,
            lanes.comparison.compared,
            lanes.comparison.equal,
            lanes.stream.hash,
            lanes.stream.drawn,
            lanes.stream.scaling,
            self._past.hues.update([view.snapshot for view in views.values()]),
            first=self._past.first,
            last=self._past.last,
            changes=self._changes,
            replayed=self.replayed,
            memory=None if lanes.config.dry else self._memory(),
            faults={name: e.fault for name, e in lanes.engines.items() if e.fault},
        )

    def _shown_state(self) -> str:
        return PAUSED if self._paused and self._state in (RUNNING, STARTING) else self._state

    def _show(self, state: str) -> None:
        """Change the state of the last picture, and nothing else of it."""
        if self._state == state and self._latest.state == state:
            return
        self._state = state
        self._latest = replace(
            self._latest, version=self._latest.version + 1, state=state, message=self._message
        )

    def _fail(self, message: str) -> None:
        self._message = message
        self._show(FAILED)

    def _release(self) -> None:
        self._earlier = None
        lanes, self._lanes = self._lanes, None
        if lanes is not None:
            lanes.close()

    def _do(self, command: Command) -> None:
        self._commands.put(command)
        self._wake.set()
