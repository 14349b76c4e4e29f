"""Runners that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kvviz.live.runner import FLAT_OUT, LiveRunner
from tests.live.support import Builder, dry


@pytest.fixture
def builder() -> Builder:
    return Builder()


@pytest.fixture
def start(builder: Builder) -> Iterator[Callable[..., LiveRunner]]:
    """`start(changes, **arguments)`: a runner of small dry lanes, flat out unless told."""
    runners: list[LiveRunner] = []

    def begin(changes=None, **arguments) -> LiveRunner:
        arguments = {"speed": FLAT_OUT, "build": builder, **arguments}
        runners.append(LiveRunner(dry(changes), **arguments))
        return runners[-1]

    yield begin
    for runner in runners:
        runner.close()
    for runner in runners:
        runner.join(15)
