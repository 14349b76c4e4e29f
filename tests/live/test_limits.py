"""What a server gives to all its visitors together."""

from __future__ import annotations

import pytest

from kvviz.caches.budget import MiB
from kvviz.errors import ConfigError
from kvviz.live.hub import Hub
from kvviz.live.limits import Limits


def test_nothing_said_is_the_default() -> None:
    assert Limits.of({}) == Limits() == Limits(20, 20.0, 0)


def test_the_environment_sets_them() -> None:
    """A server for a class of forty, or on a small machine, could not be set up."""
    said = {"KVVIZ_RUNNERS": "40", "KVVIZ_GRACE_SECONDS": "1.5", "KVVIZ_POOL_MIB": "64"}
    assert Limits.of(said) == Limits(40, 1.5, 64)
    hub = Hub.of(Limits.of(said))
    assert (hub._limit, hub._grace, hub.budget.limit_bytes) == (40, 1.5, 64 * MiB)


def test_no_limit_on_bytes_is_half_of_what_is_free() -> None:
    assert Limits().budget().limit_bytes > 16 * MiB


@pytest.mark.parametrize("name", ["KVVIZ_RUNNERS", "KVVIZ_GRACE_SECONDS", "KVVIZ_POOL_MIB"])
@pytest.mark.parametrize("text", ["-1", "many", "nan", "inf", "1e12"])
def test_a_bad_one_is_refused(name: str, text: str) -> None:
    """The server would take everybody, or nobody, and not say why."""
    with pytest.raises(ConfigError, match=f"{name}={text}: a number from"):
        Limits.of({name: text})
