"""Hub: one runner a session, a grace when it ends, and a limit."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from kvviz.caches.budget import PoolBudget
from kvviz.errors import CapacityError
from kvviz.live.hub import Hub
from tests.live.support import dry, until


@pytest.fixture
def hub() -> Iterator[Callable[..., Hub]]:
    hubs: list[Hub] = []

    def make(**arguments) -> Hub:
        hubs.append(Hub(budget=PoolBudget(1 << 30), **arguments))
        return hubs[-1]

    yield make
    for made in hubs:
        runners = list(made._runners.values())
        made.close()
        for runner in runners:
            runner.join(15)


def test_a_session_keeps_its_runner(hub):
    """Each script run would start another engine."""
    one = hub()
    runner = one.lease("a", dry)
    assert runner is one.lease("a", lambda: pytest.fail("the settings were asked for again"))
    assert runner is not one.lease("b", dry)
    assert one.running == 2


def test_a_session_that_comes_back_in_time_keeps_its_runner(hub):
    """A socket that drops for a second would lose the run."""
    one = hub(grace=30.0)
    runner = one.lease("a", dry)
    one.release("a")
    assert runner is one.lease("a", dry)
    assert runner.alive
    assert one._endings == {}


def test_after_the_grace_the_runner_is_closed(hub):
    """Sessions that are gone would keep their pools."""
    one = hub(grace=0.05)
    runner = one.lease("a", dry)
    one.release("a")
    one.release("a")
    until(lambda: not runner.alive)
    assert one.running == 0
    assert runner is not one.lease("a", dry)


def test_a_lease_in_the_very_moment_of_the_end_keeps_its_runner(hub):
    """The session would get a runner that is closed under it."""
    one = hub(grace=0.0)
    runner = one.lease("a", dry)
    with one._lock:
        one.release("a")
        timer = one._endings["a"]
        until(lambda: _is_in(timer, "_end"))  # it waits for the lock that is held here
        again = one.lease("a", dry)
    timer.join(10)
    assert runner is again
    assert again.alive


def test_release_of_an_unknown_session_is_nothing(hub):
    """Streamlit's release at shutdown would raise on its event loop."""
    one = hub()
    one.release("nobody")
    assert one._endings == {}


def test_the_limit_is_told(hub):
    """One more person would take the server down, or get no reason."""
    one = hub(limit=2)
    first = one.lease("a", dry)
    one.lease("b", dry)
    with pytest.raises(CapacityError, match="^2 people run kvviz on this server already"):
        one.lease("c", dry)
    assert first is one.lease("a", dry)
    first.close()
    assert one.lease("c", dry).alive


def test_who_has_left_makes_room(hub):
    """Three reloads of a page would keep the next visitor out for twenty seconds."""
    one = hub(limit=3, grace=60.0)
    runners = {name: one.lease(name, dry) for name in "abc"}
    one.release("b")
    one.release("a")
    assert one.lease("d", dry).alive
    assert [runners[name].alive for name in "abc"] == [True, False, True]
    assert runners["a"] is one.lease("a", dry)  # it came back in time
    with pytest.raises(CapacityError):
        one.lease("e", dry)
    assert one._endings == {}


def test_a_session_that_ended_while_it_leased_is_released(hub, monkeypatch):
    """It is released before it has a runner, which then nobody would ever end."""
    monkeypatch.setattr("kvviz.live.hub.LOOK_AGAIN_SECONDS", 0.02)
    one = hub(grace=0.01)
    one.release("a")
    runner = one.lease("a", dry, present=lambda: False)
    stays = one.lease("b", dry, present=lambda: True)
    until(lambda: not runner.alive)
    assert (one.running, stays.alive) == (1, True)


def test_a_token_leads_to_its_living_runner_only(hub):
    """A viewer would see another person's run, or one that has ended."""
    one = hub()
    runners = {name: one.lease(name, dry) for name in "abc"}
    for runner in runners.values():
        assert runner is one.by_token(runner.token)
    runners["a"].close()
    assert one.by_token(runners["a"].token) is None
    assert one.by_token("") is None
    assert one.by_token(runners["b"].token[:-1]) is None


def test_tokens_can_not_be_guessed(hub):
    """Who knows one token would know another."""
    one = hub()
    tokens = {one.lease(str(i), dry).token for i in range(8)}
    assert len(tokens) == 8
    assert min(map(len, tokens)) >= 20


def test_close_closes_all(hub):
    """Shutdown would leave threads and pools, or a timer that fires into nothing."""
    one = hub(grace=30.0)
    runners = [one.lease(name, dry) for name in "abc"]
    one.release("a")
    timer = one._endings["a"]
    one.close()
    assert [runner.alive for runner in runners] == [False] * 3
    assert one.running == 0
    timer.join(10)
    assert not timer.is_alive()


def test_no_thread_stays_behind(hub):
    """Each session would leave a thread."""
    until(lambda: _threads() == 0)
    one = hub()
    runners = [one.lease(str(i), dry) for i in range(10)]
    assert _threads() == 10
    for runner in runners:
        runner.close()
    for runner in runners:
        runner.join(15)
    assert _threads() == 0


def _threads() -> int:
    return sum(thread.name == "kvviz-lanes" for thread in threading.enumerate())


def _is_in(thread: threading.Thread, function: str) -> bool:
    frame = sys._current_frames().get(thread.ident or -1)
    while frame is not None:
        if frame.f_code.co_name == function:
            return True
        frame = frame.f_back
    return False
