"""joblib's Dask backend, made to tell of tasks that the cluster gave up.

joblib is told of answers only: a task whose workers died until Dask marked it as failed would be
waited for for ever. Imported when a cluster is asked for; needs `distributed`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from joblib._dask import DaskDistributedBackend


class _Lost(NamedTuple):
    error: BaseException


class DaskBackend(DaskDistributedBackend):  # type: ignore[misc]  # joblib has no types
    """Takes an open `client`."""

    def effective_n_jobs(self, n_jobs: int) -> int:
        """At least 2: joblib runs a single job in its own process."""
        return max(2, sum(self.client.ncores().values()))

    def submit(self, func: Any, callback: Callable[[Any], None]) -> Future:
        def ended(future: Future) -> None:
            error = future.exception()
            if error is not None:
                callback(_Lost(error))

        future = super().submit(func, callback)
        future.add_done_callback(ended)
        return future

    def retrieve_result_callback(self, out: Any) -> Any:
        if isinstance(out, _Lost):
            raise out.error
        return super().retrieve_result_callback(out)
