"""One hub a process: all runners, what they share, and when they end.

A session leases its runner. When the session ends the lease is released, and the runner is
closed after a grace, for a socket that drops comes back with the same session id.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kvviz.build import (
    Backend,
    build_lanes,
    device_memory,
    load_backend,
    memory_snapshot,
    record_memory,
)
from kvviz.caches.budget import PoolBudget
from kvviz.config import RunConfig
from kvviz.engine.lanes import Lanes
from kvviz.errors import CapacityError, KvvizError
from kvviz.live.kept import Shelf
from kvviz.live.limits import Limits
from kvviz.live.runner import LiveRunner
from kvviz.records import DeviceMemory

LOOK_AGAIN_SECONDS = 2.0
HEAD_START = 150  # steps until the default mix has filled its pool


class Hub:
    """Thread-safe. Nothing here waits for a runner's thread."""

    def __init__(
        self,
        *,
        grace: float = Limits().grace,
        limit: int = Limits().runners,
        budget: PoolBudget | None = None,
    ) -> None:
        self.budget = budget or PoolBudget.of_host()
        self.shelf = Shelf()
        self._grace, self._limit = grace, limit
        self._runners: dict[str, LiveRunner] = {}
        self._endings: dict[str, threading.Timer] = {}
        self._lock = threading.RLock()
        self._backends: dict[str, Backend] = {}
        self._backend_lock = threading.Lock()

    @classmethod
    def of(cls, limits: Limits) -> Hub:
        return cls(grace=limits.grace, limit=limits.runners, budget=limits.budget())

    def backend(self, folder: str = "") -> Backend:
        """The shared weights of a model folder, loaded once. May take seconds."""
        with self._backend_lock:
            if folder not in self._backends:
                backend = self._backends[folder] = load_backend(folder, self.budget)
                if device_memory(backend):  # before the first pool, so that a snapshot shows it
                    record_memory(backend)
            return self._backends[folder]

    def lease(
        self,
        session: str,
        config: Callable[[], RunConfig],
        replay_to: int | None = None,
        present: Callable[[], bool] = lambda: True,
    ) -> LiveRunner:
        """The session's runner, made when there is none (and then brought to the step
        `replay_to`). Raises CapacityError when full.

        `present()`: is the session still there? It may have ended, and been released, while the
        script that leases was under way; so it is asked once more after a new lease.
        """
        with self._lock:
            ending = self._endings.pop(session, None)
            if ending:
                ending.cancel()
            runner = self._runners.get(session)
            if runner is not None and runner.alive:
                return runner
            self._forget_the_dead()
            self._end_the_left()
            if len(self._runners) >= self._limit:
                raise CapacityError(
                    f"{self._limit} people run kvviz on this server already, and that is its "
                    "limit. Wait for one to leave, or run your own: `make run`."
                )
            runner = LiveRunner(
                config(),
                self._build,
                device=self._device,
                memory=self._memory,
                head_start=HEAD_START,
                replay_to=replay_to,
            )
            self._runners[session] = runner
            again = threading.Timer(LOOK_AGAIN_SECONDS, self._look_again, (session, present))
            again.daemon = True
            again.start()
            return runner

    def release(self, session: str) -> None:
        """The session ended: close its runner after the grace, unless it comes back."""
        with self._lock:
            if session not in self._runners or session in self._endings:
                return
            timer = threading.Timer(self._grace, self._end, (session,))
            timer.daemon = True
            self._endings[session] = timer
            timer.start()

    def by_token(self, token: str) -> LiveRunner | None:
        with self._lock:
            for runner in self._runners.values():
                if runner.token == token and runner.alive:
                    return runner
        return None

    @property
    def running(self) -> int:
        with self._lock:
            return sum(runner.alive for runner in self._runners.values())

    def close(self) -> None:
        """Close every runner (server shutdown)."""
        with self._lock:
            for timer in self._endings.values():
                timer.cancel()
            for runner in self._runners.values():
                runner.close()
            self._runners.clear()
            self._endings.clear()

    def _end(self, session: str) -> None:
        with self._lock:
            if self._endings.get(session) is not threading.current_thread():
                return  # the session came back while this timer waited for the lock
            del self._endings[session]
            runner = self._runners.pop(session, None)
        if runner is not None:
            runner.close()

    def _look_again(self, session: str, present: Callable[[], bool]) -> None:
        if not present():
            self.release(session)

    def _end_the_left(self) -> None:
        """Of a full server: who has left does not get the whole grace, the first first. A few
        reloads of one page would keep others out."""
        while self._endings and len(self._runners) >= self._limit:
            session = next(iter(self._endings))
            self._endings.pop(session).cancel()
            runner = self._runners.pop(session, None)
            if runner is not None:
                runner.close()

    def _forget_the_dead(self) -> None:
        self._runners = {s: r for s, r in self._runners.items() if r.alive}

    def _build(self, config: RunConfig) -> Lanes:
        return build_lanes(config, None if config.dry else self.backend(config.model))

    def memory_snapshot(self) -> bytes:
        """Torch's memory snapshot. Raises ConfigError without a GPU, KvvizError before a model is
        loaded."""
        if (backend := self._any_backend()) is None:
            raise KvvizError("No model is loaded yet. Wait, and ask again.")
        return memory_snapshot(backend)

    def _device(self) -> str:
        backend = self._any_backend()
        return backend.device_name if backend else ""

    def _memory(self) -> DeviceMemory | None:
        backend = self._any_backend()
        return device_memory(backend) if backend else None

    def _any_backend(self) -> Backend | None:
        """They are all on one device."""
        return next(iter(self._backends.values()), None)
