"""The server's own routes: assets and the live channel."""

from __future__ import annotations

import gzip
import json
import queue
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

import kvviz.ui.server as server
from kvviz.caches.budget import PoolBudget
from kvviz.live.hub import Hub
from kvviz.live.runner import LiveRunner
from kvviz.recording.files import unpack
from tests.live.support import dry, until


@pytest.fixture
def hub(monkeypatch) -> Iterator[Hub]:
    one = Hub(budget=PoolBudget(1 << 30))
    monkeypatch.setattr(server, "hub", lambda: one)
    monkeypatch.setattr(
        "kvviz.ui.viewer._IDLE_SECONDS", 0.1
    )  # how soon a channel notes that it ended
    yield one
    runners = list(one._runners.values())
    one.close()
    for runner in runners:
        runner.join(15)


@pytest.fixture
def client(hub) -> Iterator[TestClient]:
    with TestClient(Starlette(routes=server.routes())) as client:
        yield client


@pytest.fixture
def runner(hub) -> LiveRunner:
    runner = hub.lease("a", dry)
    runner.set_speed(200.0)
    until(lambda: runner.latest().step > 3)
    return runner


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("live.js", "text/javascript"),
        ("picture.js", "text/javascript"),
        ("live.css", "text/css"),
        ("plotly.js", "text/javascript"),
    ],
)
def test_assets(client, name, kind):
    """The page would have no style or no script."""
    answer = client.get(f"/kvviz/assets/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["content-type"].startswith(kind)
    assert answer.headers["x-content-type-options"] == "nosniff"
    if name != "plotly.js":
        assert Path(server.__file__).with_name(name).read_text("utf-8") == answer.text
    else:
        assert "plotly.js v" in answer.text[:500]


@pytest.mark.parametrize("base", ["team", "/team/", "a/b"])
def test_everything_lies_under_the_base_path(hub, monkeypatch, base):
    """Behind a proxy that shares its host the page would stay empty: the component asks there."""
    monkeypatch.setattr(server.st, "get_option", lambda name: {"server.baseUrlPath": base}[name])
    at = f"/{base.strip('/')}/"
    assert server.base_path() == at
    assert all(route.path.startswith(f"{at}kvviz/") for route in server.routes())
    with TestClient(Starlette(routes=server.routes())) as client:
        assert client.get(f"{at}kvviz/status").json()["runners"] == 0
        assert client.get(f"{at}kvviz/assets/live.js").status_code == 200
        assert client.get("/kvviz/status").status_code == 404


def test_an_asset_is_compressed_once():
    """Each page load would cost a second of compressing plotly."""
    body = server._asset("live.js")
    assert body is server._asset("live.js")
    assert b"export function mount" in gzip.decompress(body)


@pytest.mark.parametrize(
    "name",
    [
        "nothing.js",
        "server.py",
        "../server.py",
        "..%2fserver.py",
        "%2e%2e/server.py",
        "%2e%2e%2fserver.py",
        "....//server.py",
        "live.js%00",
        "%2fetc%2fpasswd",
        "",
    ],
)
def test_nothing_else_is_served(client, name):
    """Files of the server would be handed out."""
    answer = client.get(f"/kvviz/assets/{name}")
    assert answer.status_code == 404
    assert "import" not in answer.text


def test_the_version_of_the_assets_is_stable():
    """Browsers would fetch plotly with each page, or keep an old script."""
    assert server.asset_version() == server.asset_version()
    assert len(server.asset_version()) == 12


def test_an_unknown_token_is_sent_away(client, runner):
    """A guess would open somebody's run, or the browser would try for ever."""
    for token in ("nobody", runner.token[:-1], runner.token + "x"):
        assert ended(client, token) == 4404
    runner.close()
    assert ended(client, runner.token) == 4404


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "http://testserver.evil.example", "null", "http://testserver:1"],
)
def test_a_foreign_page_is_sent_away(client, runner, origin):
    """Any page could read and steer a run through its visitor's browser."""
    assert refused(client, runner.token, origin) == 4403


@pytest.mark.parametrize("origin", [None, "http://testserver", "https://testserver"])
def test_a_good_viewer_gets_a_frame(client, runner, origin):
    """The page would stay empty."""
    with connect(client, runner, origin) as socket:
        frame = socket.frame(ready=True)
    assert {"map-contiguous", "map-paged"} <= set(frame["figures"])


def test_frames_come_only_when_asked_for(client, runner):
    """A slow browser would fall behind further and further."""
    with connect(client, runner) as socket:
        first = socket.frame(ready=True)
        until(lambda: runner.latest().version > first["version"] + 10)
        newest = runner.latest().version
        second = socket.frame(ready=True)
    assert second["version"] >= newest


def test_a_run_is_saved_and_handed_out(client, runner):
    """The link to the recording would lead nowhere."""
    runner.pause()
    until(lambda: runner.latest().state == "paused")
    told = client.post(f"/kvviz/keep/{runner.token}?step=2").json()
    assert (told["first"], told["last"], told["shown"]) == (1, runner.latest().last, 2)
    file = client.get(f"/kvviz/kept/{told['id']}.kvviz")
    assert len(file.content) == told["bytes"]
    assert unpack(file.content).manifest.shown == 2
    named = f'filename="kvviz-steps1-{told["last"]}.kvviz"'
    assert named in file.headers["content-disposition"]


def test_a_run_is_saved_for_its_own_page_only(client, runner):
    """A guess, or another page in the visitor's browser, would read a run or fill the shelf."""
    foreign = {"origin": "http://evil.example"}
    assert client.post("/kvviz/keep/nobody?step=2").status_code == 404
    assert client.post(f"/kvviz/keep/{runner.token}", headers=foreign).status_code == 404
    assert client.get(f"/kvviz/keep/{runner.token}").status_code == 405
    assert client.get("/kvviz/kept/nothing.kvviz").status_code == 404


def test_a_run_that_is_still_empty_says_why_it_is_not_saved(client, hub):
    empty = hub.lease("b", dry, 0)
    until(lambda: empty.latest().state == "paused")
    answer = client.post(f"/kvviz/keep/{empty.token}?step=x")
    assert (answer.status_code, answer.text[:21]) == (503, "No step was made yet.")


def test_no_frame_before_the_first_ready(client, runner):
    """A frame would come before the browser has loaded plotly."""
    with connect(client, runner) as socket:
        before = runner.latest().version
        until(lambda: runner.latest().version > before + 10)
        newest = runner.latest().version
        assert socket.frame(ready=True)["version"] >= newest


def test_a_paused_run_is_sent_once(client, runner):
    """A paused run would send the same frame again and again."""
    with connect(client, runner) as socket:
        socket.send(do="pause")
        until(lambda: runner.latest().state == "paused")
        first = socket.frame(ready=True)
        socket.send(ready=True)
        socket.send(do="step")
        second = socket.frame()
    assert first["version"] < second["version"]
    assert first["step"] < second["step"]


@pytest.mark.parametrize(
    "text",
    [
        "", "no json", "{", "[]", "[1, 2]", "null", "7", '"ready"', "NaN", "{}", '{"ready": 0}',
        '{"do": "explode"}', '{"do": null}', '{"do": ["pause"]}', '{"do": {"a": 1}}',
        '{"theme": "pink"}', '{"theme": 7}', '{"colour": ["age"]}', '{"colour": null}',
        '{"visible": "no"}', '{"unknown": true}', "x" * 5000, '{"do": "' + "p" * 100_000 + '"}',
    ],
    ids=lambda text: text[:20] or "empty",
)  # fmt: skip
def test_garbage_is_survived(client, runner, text):
    """A broken message would end the viewer's channel, or worse, steer the run."""
    with connect(client, runner) as socket:
        socket.frame(ready=True)
        socket.raw(text)
        frame = socket.frame(ready=True)
    assert (frame["theme"], runner.paused) == ("light", False)


@pytest.mark.parametrize("text", ['{"theme": []}', '{"theme": {}}'])
def test_a_theme_of_a_wrong_kind_is_survived(client, runner, text):
    """The channel would end: `[] in {...}` raises TypeError."""
    with connect(client, runner) as socket:
        socket.frame(ready=True)
        socket.raw(text)
        assert socket.frame(ready=True)["theme"] == "light"


def test_deep_json_is_survived(client, runner):
    """The channel would end: json raises RecursionError, which is a RuntimeError."""
    with connect(client, runner) as socket:
        socket.frame(ready=True)
        socket.raw("[" * 4000)
        assert socket.frame(ready=True)["theme"] == "light"


def test_bytes_are_survived(client, runner):
    """The channel would end, and the page would say that the run has ended."""
    with connect(client, runner) as socket:
        socket.frame(ready=True)
        socket.session.send_bytes(b"\x00\xff")
        assert socket.frame(ready=True)["theme"] == "light"


def test_a_word_that_is_too_long_is_not_obeyed(client, runner):
    """A message of any length would be parsed."""
    with connect(client, runner) as socket:
        socket.frame(ready=True)
        socket.raw(json.dumps({"do": "pause", "pad": "x" * 5000}))
        socket.frame(ready=True)
    assert not runner.paused


def test_orders_steer_the_run(client, runner):
    """The buttons would do nothing."""
    with connect(client, runner) as socket:
        socket.send(do="pause")
        until(lambda: runner.latest().state == "paused")
        step = runner._lanes.step_count
        socket.send(do="step")
        until(lambda: runner.latest().step == step + 1)
        assert runner.paused
        socket.send(do="play")
        until(lambda: runner.latest().state == "running" and runner.latest().step > step + 5)
        socket.send(do="pause")
        socket.send(do="reset")
        until(lambda: runner.latest().step == 0)


def test_theme_and_colour_take_effect_in_a_paused_run(client, runner):
    """Switching to dark would wait for the next step."""
    with connect(client, runner) as socket:
        socket.send(do="pause")
        until(lambda: runner.latest().state == "paused")
        first = socket.frame(ready=True)
        dark = socket.frame(theme="dark", ready=True)
        aged = socket.frame(colour="age", ready=True)
    assert (first["theme"], dark["theme"], aged["theme"]) == ("light", "dark", "dark")
    assert set(first["figures"]) == set(dark["figures"])
    assert {"map-contiguous", "map-paged"} == set(aged["figures"])


def test_a_viewer_looks_back_and_returns(client, runner):
    """The scrubber would move and the maps would not, or nobody would find back."""
    with connect(client, runner) as socket:
        until(lambda: runner.latest().step > 30)
        socket.send(do="pause")
        until(lambda: runner.latest().state == "paused")
        newest = runner.latest()
        back = socket.frame(look=20, ready=True)
        assert back["step"] == 20
        kept = {name: back["past"][name] for name in ("looking", "first", "last")}
        assert kept == {"looking": True, "first": 0, "last": newest.step}
        assert {"map-contiguous", "map-paged", "time"} <= set(back["figures"])
        assert len(back["figures"]["time"]["layout"]["shapes"]) == 1
        found = socket.frame(look="next", ready=True)
        assert found["step"] >= 20
        live = socket.frame(look=None, ready=True)
        assert (live["step"], live["past"]["looking"]) == (newest.step, False)
        socket.frame(look=5, ready=True)
        socket.send(do="play")
        until(lambda: runner.latest().step > newest.step + 5)
        assert not socket.frame(ready=True)["past"]["looking"]


@pytest.mark.parametrize("look", [-1, 2.5, True, "far", [3], {"a": 1}])
def test_a_look_at_nowhere_is_ignored(client, runner, look):
    with connect(client, runner) as socket:
        socket.frame(ready=True)
        assert not socket.frame(look=look, ready=True)["past"]["looking"]


def test_questions_are_answered_beside_the_frames(client, runner):
    """A click on the map, a pin or the whole run would bring nothing."""
    with connect(client, runner) as socket:
        until(lambda: runner.latest().step > 40)
        socket.send(do="pause")
        until(lambda: runner.latest().state == "paused")
        first = socket.frame(ready=True)
        assert "selected" not in first
        request = next(iter(first["hover"]["paged"]["requests"]))
        asked = socket.frame(select=int(request), log={}, pin=20, run="paged", ready=True)
        assert asked["selected"]["lanes"]["paged"]["state"] == "running"
        assert asked["log"]["rows"]
        assert asked["pinned"]["steps"] == [20, runner.latest().step]
        assert {"pin-contiguous", "pin-paged", "run"} <= set(asked["figures"])
        assert asked["said"]["pin-paged"].startswith("Pinned step 20, paged: ")
        assert asked["said"]["run"].startswith("Time by address, paged, steps ")
        again = socket.frame(colour="age", ready=True)
        assert {"pin-paged", "run", "map-paged"} <= set(again["figures"])


def test_requests_are_ended_and_added_by_hand(client, runner):
    """The buttons would do nothing, and the stamp would not tell."""
    with connect(client, runner) as socket:
        until(lambda: runner.latest().step > 40)
        frame = socket.frame(do="pause", ready=True)
        socket.send(add=64)
        until(lambda: len(runner.latest().changes) == 1)
        socket.send(add="64", finish=True)
        socket.send(finish=int(next(iter(frame["hover"]["paged"]["requests"]))))
        stamp = socket.frame(ready=True)["stamp"]
        assert "changed while it ran, at step" in stamp


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_events_are_downloaded(client, runner, kind):
    answer = client.get(f"/kvviz/events/{runner.token}.{kind}")
    assert answer.status_code == 200
    assert f".{kind}" in answer.headers["content-disposition"]
    assert len(answer.content) > 100
    assert client.get(f"/kvviz/events/{runner.token}.exe").status_code == 404
    assert client.get(f"/kvviz/events/nobody.{kind}").status_code == 404


def test_memory_snapshots_are_downloaded(client, runner, hub, monkeypatch):
    """The link leads to a stack trace, or gives the snapshot to anybody."""
    before = client.get(f"/kvviz/memory/{runner.token}.pickle")
    assert (before.status_code, before.text[:27]) == (404, "No model is loaded yet. Wai")
    monkeypatch.setattr(hub, "memory_snapshot", lambda: b"pickled")
    answer = client.get(f"/kvviz/memory/{runner.token}.pickle")
    assert (answer.status_code, answer.content) == (200, b"pickled")
    assert "kvviz-memory.pickle" in answer.headers["content-disposition"]
    assert client.get("/kvviz/memory/nobody.pickle").status_code == 404


def test_a_hidden_page_gets_no_frames(client, runner):
    """Background tabs would cost as much as open ones."""
    with connect(client, runner) as socket:
        first = socket.frame(ready=True)
        socket.send(visible=False, ready=True)
        until(lambda: runner.latest().version > first["version"] + 20)
        newest = runner.latest().version
        assert socket.frame(visible=True)["version"] >= newest


def test_the_end_of_the_run_is_told(client, runner):
    """The browser would wait for a run that has ended."""
    with connect(client, runner) as socket:
        socket.frame(ready=True)
        runner.close()
        with pytest.raises(WebSocketDisconnect) as ended:
            while True:
                socket.frame(ready=True)
    assert ended.value.code == 4410


def test_two_viewers_of_one_run_do_not_share_what_they_have(client, runner):
    """A second window would get half a page."""
    with connect(client, runner) as one, connect(client, runner) as two:
        first, second = one.frame(ready=True), two.frame(ready=True)
    assert set(first["figures"]) == set(second["figures"])


class Socket:
    """A viewer; frames are waited for with a deadline."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def send(self, **words: Any) -> None:
        self.raw(json.dumps(words))

    def raw(self, text: str) -> None:
        self.session.send_text(text)

    def frame(self, **words: Any) -> dict[str, Any]:
        if words:
            self.send(**words)
        return json.loads(zlib.decompress(in_time(self.session.receive_bytes)))


class connect:
    """A channel to this runner, as a context."""

    def __init__(self, client: TestClient, runner: LiveRunner, origin: str | None = None) -> None:
        headers = {"origin": origin} if origin else {}
        address = f"/kvviz/live/{runner.token}"
        self._session = client.websocket_connect(address, headers=headers)

    def __enter__(self) -> Socket:
        return Socket(self._session.__enter__())

    def __exit__(self, *error: Any) -> None:
        self._session.__exit__(*error)


def refused(client: TestClient, token: str, origin: str) -> int:
    """The code that the channel is closed with before it opens."""
    headers = {"origin": origin}
    with (
        pytest.raises(WebSocketDisconnect) as closed,
        client.websocket_connect(f"/kvviz/live/{token}", headers=headers),
    ):
        pass
    return closed.value.code


def ended(client: TestClient, token: str) -> int:
    """The code of a channel that opens and is closed at once: browsers see no other code."""
    with (
        pytest.raises(WebSocketDisconnect) as closed,
        client.websocket_connect(f"/kvviz/live/{token}") as socket,
    ):
        socket.receive_bytes()
    return closed.value.code


def in_time(act: Callable[[], bytes], seconds: float = 15.0) -> bytes:
    """What `act` returns or raises; fails instead of hanging."""
    answers: queue.SimpleQueue = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((act(), None))
        except BaseException as error:
            answers.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    value, error = answers.get(timeout=seconds)
    if error is not None:
        raise error
    return value
