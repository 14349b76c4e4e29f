"""Tasks on the cores of this machine or on a cluster, through joblib.

A worker that dies takes down the round that it ran in, and costs it a retry: what had come back
stays, the rest runs again. After two such rounds (on Dask one, for it has retried by then) every
task that is left runs in a round of its own, so that the one that kills its worker is found, and
fails alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import joblib

from kvviz.errors import ConfigError

ROUNDS = {"loky": 2, "dask": 1, "ray": 2}  # together, before each task runs alone
BACKENDS = tuple(ROUNDS)
ALONE = 2  # times: a worker may still die of the task before
_CONNECT_SECONDS = 10
_WORKER_SECONDS = 120  # a cluster whose workers died starts new ones
# By name, for two of them come from packages that need not be installed
_DEATHS = {"BrokenProcessPool", "KilledWorker", "RayActorError", "WorkerCrashedError"}
_TASKS_OF_A_PART = 2  # for each worker


@dataclass(frozen=True)
class Pool:
    """`jobs` workers at once: -1 for every core, 1 for this very process (which then shares the
    fate of its tasks). A cluster has an address, and as many workers as it has."""

    backend: str = "loky"
    address: str = ""
    jobs: int = -1

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ConfigError(
                f"backend {self.backend!r}: one of {', '.join(BACKENDS)} was expected."
            )
        if self.jobs != -1 and self.jobs < 1:
            raise ConfigError(f"jobs {self.jobs}: -1 (every core) or at least 1 was expected.")
        if self.backend == "loky" and self.address:
            raise ConfigError("An address is for a cluster: choose backend dask or ray.")
        if self.backend == "dask" and not self.address:
            raise ConfigError("Backend dask needs the scheduler's address, tcp://HOST:8786.")


class _Answer(NamedTuple):
    """`value` is the result, or why there is none."""

    key: str
    done: bool
    value: Any


def run_tasks(
    function: Callable[[Any], Any],
    tasks: Mapping[str, Any],
    pool: Pool,
    *,
    done: Callable[[str, Any], None],
    cancelled: Callable[[], bool] = lambda: False,
) -> dict[str, str]:
    """Call `function` (importable by name) on each task; `done` gets its key and result here, in
    this thread, in the order in which they come back.

    Once `cancelled()` says so no further task begins; those running come back. Returns {key: why}
    of the tasks that failed. Raises ConfigError when the cluster can't be reached.
    """
    left = dict(tasks)
    failed: dict[str, str] = {}

    def whole(keys: list[str]) -> bool:
        """Run these; False when a worker died."""
        try:
            ready()
            for answer in _answers(function, {key: left[key] for key in keys}, pool, cancelled):
                del left[answer.key]
                if answer.done:
                    done(answer.key, answer.value)
                else:
                    failed[answer.key] = answer.value
        except Exception as error:
            if not _is_death(error):
                raise
            return False
        return True

    with _connected(pool) as ready:
        for _ in range(ROUNDS[pool.backend]):
            if not left or cancelled() or whole(list(left)):
                return failed
        for key in list(left):
            if not cancelled() and not any(whole([key]) for _ in range(ALONE)):
                failed[key] = "Its worker died, each time that it was tried."
    return failed


def _answers(
    function: Callable[[Any], Any],
    tasks: Mapping[str, Any],
    pool: Pool,
    cancelled: Callable[[], bool],
) -> Iterator[_Answer]:
    def calls() -> Iterator[Any]:
        for key, task in tasks.items():
            if cancelled():
                return
            yield joblib.delayed(_attempt)(function, key, task)

    if pool.backend == "ray":
        yield from _in_parts(calls())
        return
    # Tasks are dispatched one by one as others come back, so that a cancel is seen between them
    parallel = joblib.Parallel(return_as="generator_unordered", pre_dispatch="n_jobs", batch_size=1)
    yield from parallel(calls())


def _in_parts(calls: Iterator[Any]) -> Iterator[_Answer]:
    """Ray's pool hands back all that it was given at once, so it is given a little at a time."""
    with joblib.Parallel(batch_size=1) as parallel:
        count = _TASKS_OF_A_PART * joblib.effective_n_jobs(-1)
        while part := list(islice(calls, count)):
            yield from parallel(part)


def _attempt(function: Callable[[Any], Any], key: str, task: Any) -> _Answer:
    try:
        return _Answer(key, True, function(task))
    except Exception as error:
        return _Answer(key, False, f"{type(error).__name__}: {error}")


def _is_death(error: Exception) -> bool:
    return any(kind.__name__ in _DEATHS for kind in type(error).__mro__)


@contextmanager
def _connected(pool: Pool) -> Iterator[Callable[[], None]]:
    """Inside, joblib's Parallel runs on this pool. Yields what waits for a worker."""
    if pool.backend == "loky":
        # joblib would run a single job in this process, and die with it
        jobs = pool.jobs if pool.jobs > 0 else max(2, joblib.cpu_count())
        with joblib.parallel_config("loky", n_jobs=jobs):
            yield _always
    elif pool.backend == "dask":
        with _dask(pool.address) as (backend, ready), joblib.parallel_config(backend):
            yield ready
    else:
        _join_ray(pool.address)
        with joblib.parallel_config("ray", n_jobs=pool.jobs):
            yield _always


def _always() -> None:
    """Workers are started as they are needed."""


def _nothing() -> None:
    """What a worker can always do."""


@contextmanager
def _dask(address: str) -> Iterator[tuple[Any, Callable[[], None]]]:
    try:
        from distributed import Client

        from kvviz.sweeps.dask_backend import DaskBackend
    except ImportError as error:
        raise ConfigError("Backend dask: pip install dask distributed.") from error
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"No Dask scheduler answers at {address}: {error}") from error

    def ready() -> None:
        if client.ncores():
            return
        try:  # an adaptive cluster starts workers when there is work
            client.submit(_nothing, pure=False).result(timeout=_WORKER_SECONDS)
        except TimeoutError as error:
            raise ConfigError(f"The Dask cluster at {address} has no worker. Start one.") from error

    with client:
        yield DaskBackend(client=client), ready


def _join_ray(address: str) -> None:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError as error:
        raise ConfigError("Backend ray: pip install ray.") from error
    try:
        ray.init(address=address or None, ignore_reinit_error=True)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"No Ray cluster answers at {address}: {error}") from error
    register_ray()
