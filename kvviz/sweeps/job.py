"""Work in a thread of its own, with progress and cancel: what a page looks at while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from kvviz.errors import KvvizError


class Progress(NamedTuple):
    """Tasks done (of them `kept` were read from disk), failed, and all."""

    done: int
    kept: int
    failed: int
    total: int


Told = Callable[[Progress], None]
Cancelled = Callable[[], bool]
Work = Callable[[Told, Cancelled], dict[str, Any]]


class Job:
    """Starts at once. `result` and `error` are None until it ends; one of them is set then."""

    def __init__(self, work: Work) -> None:
        self.progress = Progress(0, 0, 0, 0)
        self.result: dict[str, Any] | None = None
        self.error: str | None = None
        self._cancel = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def cancelled(self) -> bool:
        return self._cancel.is_set()

    def cancel(self) -> None:
        """No further task begins; those running come back, and the job ends with what there is."""
        self._cancel.set()

    def join(self, seconds: float | None = None) -> None:
        self._thread.join(seconds)

    def _run(self, work: Work) -> None:
        try:
            self.result = work(self._told, self._cancel.is_set)
        except KvvizError as error:
            self.error = str(error)
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
            raise

    def _told(self, progress: Progress) -> None:
        self.progress = progress
