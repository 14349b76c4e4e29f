"""Tasks on local workers and on a Dask cluster, some of which kill their worker."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from kvviz.config import RunConfig
from kvviz.errors import ConfigError
from kvviz.sweeps.cell import run_cell
from kvviz.sweeps.grid import Grid
from kvviz.sweeps.kept import Kept
from kvviz.sweeps.pool import Pool, run_tasks
from kvviz.sweeps.sweep import run_sweep
from kvviz.sweeps.table import rows
from tests.sweeps.tasks import Task, shout

LOCAL = Pool(jobs=2)
HERE = Pool(jobs=1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Pool]:
    """Two workers that are processes of their own; the scheduler gives a task up at once when
    its worker died, so that the retry is ours."""
    dask = pytest.importorskip("dask")
    distributed = pytest.importorskip("distributed")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        # Streamlit's test harness leaves its page there, and every new process would run it
        patch.setitem(sys.modules, "__main__", ModuleType("__main__"))
        warnings.simplefilter("ignore")  # of ports that are taken, and slow starts
        with (
            dask.config.set(
                {
                    "distributed.scheduler.allowed-failures": 0,
                    # a slow restart is no reason to remove a worker for good
                    "distributed.deploy.lost-worker-timeout": "300s",
                }
            ),
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
            ) as made,
        ):
            yield Pool("dask", made.scheduler_address)


@pytest.fixture(scope="module")
def ray_cluster(root) -> Iterator[Pool]:
    """Two workers of a cluster on this machine, where Ray is installed."""
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "__main__", ModuleType("__main__"))
        warnings.simplefilter("ignore")
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}"}},
        )
        yield Pool("ray")
        ray.shutdown()


@pytest.fixture(params=["local", "dask", "ray"])
def pool(request) -> Pool:
    if request.param == "local":
        return LOCAL
    return request.getfixturevalue("cluster" if request.param == "dask" else "ray_cluster")


def asked(pool: Pool, *tasks: Task, **more: Any) -> tuple[dict[str, str], dict[str, str]]:
    """(answers, failures)"""
    answers: dict[str, str] = {}
    failed = run_tasks(
        shout, {task.word: task for task in tasks}, pool, done=answers.__setitem__, **more
    )
    return answers, failed


def test_all_answers_come_back(pool):
    """A task would be lost, or answered with another one's answer."""
    words = [f"w{i}" for i in range(9)]
    assert ({w: w.upper() for w in words}, {}) == asked(pool, *map(Task, words))


def test_an_error_fails_its_own_task_only(pool):
    """One bad cell would end the sweep."""
    answers, failed = asked(pool, Task("a"), Task("error"), Task("b"))
    assert answers == {"a": "A", "b": "B"}
    assert failed == {"error": "ValueError: no such word"}


def test_a_worker_that_dies_costs_a_retry(pool, tmp_path):
    """A killed worker would end the sweep, or lose cells."""
    tasks = [Task(f"w{i}") for i in range(4)] + [Task("dies", str(tmp_path), 1)]
    answers, failed = asked(pool, *tasks)
    assert ({t.word: t.word.upper() for t in tasks}, {}) == (answers, failed)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_task_that_always_kills_fails_alone(pool, tmp_path):
    """One such cell would take the others with it, or be tried for ever."""
    answers, failed = asked(pool, Task("a"), Task("dies", str(tmp_path), 99), Task("b"), Task("c"))
    assert answers == {"a": "A", "b": "B", "c": "C"}
    assert list(failed) == ["dies"] and "died" in failed["dies"]


def test_a_cancel_lets_no_task_begin():
    """Cancel would do nothing, or throw away what is done."""
    answers: dict[str, str] = {}
    tasks = {word: Task(word) for word in "abcdefgh"}
    failed = run_tasks(
        shout, tasks, HERE, done=answers.__setitem__, cancelled=lambda: len(answers) >= 3
    )
    assert (answers, failed) == ({"a": "A", "b": "B", "c": "C"}, {})


def test_the_cluster_gives_what_this_process_gives(cluster, tmp_path):
    """A sweep on a cluster would have other numbers: 64 cells, every figure of every lane."""
    axes = {
        "paged.block_size": (4, 8, 16, 32),
        "contiguous.fit": ("first", "best", "worst", "next"),
        "mix.rate": (0.2, 0.3, 0.4, 0.5),
    }
    grid = Grid(RunConfig(), axes, steps=15)
    assert len(grid.places) == 64
    there = run_sweep(grid, cluster, Kept(tmp_path))
    assert there["complete"] and there["ran"] == 64
    alone = [run_cell(place.cell) for place in grid.places]
    assert [cell["lanes"] for cell in alone] == [cell["lanes"] for cell in there["cells"]]
    assert [c["stream_hash"] for c in alone] == [c["stream_hash"] for c in there["cells"]]
    assert len(rows(there)) == 128


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Pool("slurm"), "loky, dask, ray"),
        (lambda: Pool(jobs=0), "at least 1"),
        (lambda: Pool("dask"), "address"),
        (lambda: Pool("loky", "tcp://x:1"), "cluster"),
    ],
)
def test_a_bad_pool_is_refused(make: Callable[[], Pool], words: str):
    """It would fail half-way, with a traceback."""
    with pytest.raises(ConfigError, match=words):
        make()


def test_no_scheduler_at_the_address(monkeypatch):
    """A wrong address would hang, or end in a traceback."""
    pytest.importorskip("distributed")
    monkeypatch.setattr("kvviz.sweeps.pool._CONNECT_SECONDS", 0.5)
    with pytest.raises(ConfigError, match="No Dask scheduler answers"):
        asked(Pool("dask", "tcp://127.0.0.1:9"), Task("a"))
