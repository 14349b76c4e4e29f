"""One hypothesis profile for all tests, and a random model small enough to serve in them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, is_hypothesis_test, settings

from kvviz.build import Backend
from kvviz.caches.budget import PoolBudget
from kvviz.model.llama import Llama
from kvviz.model.serving import ServingModel, fuse
from kvviz.records import Request
from kvviz.shapes import ModelShape
from kvviz.soak.weights import SMALL as TINY

# Deterministic and without a database: a red test stays red, on any machine.
settings.register_profile(
    "kvviz",
    derandomize=True,
    deadline=None,
    max_examples=60,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("kvviz")

# A second thread waits for the first one's core on a busy machine: 20 times slower at this size.
torch.set_num_threads(1)

ROOT = Path(__file__).resolve().parents[1]
COVERED = ("allocators", "caches", "engine", "metrics", "workloads")  # as the Makefile has them


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Coverage is asked of some packages, each by its own tests, and of those that were written by
    hand: its tracer takes as long as a test, and examples by the hundred run the same lines again.
    (pytest-cov's own `no_cover` stops one of the two tracers in a worker of xdist.)"""
    examples = isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)
    package = item.path.relative_to(ROOT / "tests").parts[0]
    if package in COVERED and not examples and not item.get_closest_marker("untraced"):
        return (yield)
    tracers = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracers[0])
        threading.settrace(tracers[1])


def random_llama(shape: ModelShape, seed: int = 0) -> Llama:
    """Random weights, large enough that attention is sharp and a wrong one shows in the logits."""
    model = Llama(shape, torch.Generator().manual_seed(seed)).eval()
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("norm.weight"):
                weight.uniform_(0.5, 1.5, generator=generator)
            else:
                weight.mul_(10.0)
    return model


def random_prompt(request: Request) -> np.ndarray:
    """Bytes int32 [prompt_len] fixed by `request.shared` and `request.text`; stands for
    `model.prompts.PromptText`."""
    own = request.prompt_len - sum(length for _, length in request.shared)
    return np.concatenate(
        [
            np.random.default_rng(key).integers(0, 256, length).astype(np.int32)
            for key, length in [*request.shared, (request.text, own)]
        ]
    )


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def shape() -> ModelShape:
    return TINY


@pytest.fixture(scope="session")
def llama(shape: ModelShape) -> Llama:
    """The reference without a cache."""
    return random_llama(shape)


@pytest.fixture(scope="session")
def serving(shape: ModelShape, llama: Llama) -> ServingModel:
    """The same weights, fused for serving on the CPU."""
    return fuse(shape, dict(llama.state_dict()), torch.device("cpu"))


@pytest.fixture
def backend(serving: ServingModel) -> Backend:
    """A backend with a budget of its own, so that a test can read what pools took."""
    return Backend(serving, random_prompt, PoolBudget(1 << 28), "CPU")
