"""What the server does beside Streamlit: load torch behind the page, serve the live channel.

The channel is a WebSocket of its own. The browser asks for each frame after it has drawn the
last one, so a slow viewer gets fewer frames and never a backlog, and no script runs a frame.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
import hashlib
import json
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

import streamlit as st
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from kvviz.errors import KvvizError
from kvviz.live.hub import Hub
from kvviz.live.runner import THREAD_NAME, LiveRunner
from kvviz.ui.frames import FrameBuilder
from kvviz.views.memory_map import COLOUR_BY
from kvviz.views.theme import THEMES

log = logging.getLogger(__name__)

FRAME_SECONDS = 0.1
_POLL_SECONDS = 0.02
_IDLE_SECONDS = 2.0
_KINDS = {
    "plotly.js": "text/javascript; charset=utf-8",
    "live.js": "text/javascript; charset=utf-8",
    "picture.js": "text/javascript; charset=utf-8",
    "live.css": "text/css; charset=utf-8",
}
_WORDS = 4096  # longest message taken from a browser, in bytes


@st.cache_resource(show_spinner=False)
def hub() -> Hub:
    """The process's hub. Streamlit's cache keeps it when an edited module is imported anew; a
    module's own global would be lost then, with every runner in it."""
    return Hub()


@asynccontextmanager
async def lifespan(_app: object) -> AsyncIterator[dict]:
    """Load torch, the kernels and the model while nobody has asked for a page yet."""
    threading.Thread(target=_preload, name="kvviz-preload", daemon=True).start()
    try:
        yield {}
    finally:
        hub().close()


def routes() -> list[BaseRoute]:
    return [
        WebSocketRoute("/kvviz/live/{token}", live_channel),
        Route("/kvviz/assets/{name}", asset),
        Route("/kvviz/status", status),
    ]


async def status(_request: Request) -> Response:
    """Runner threads alive in this process, and what their pools hold."""
    budget = hub().budget
    threads = sum(thread.name == THREAD_NAME for thread in threading.enumerate())
    return JSONResponse(
        {
            "runners": threads,
            "pool_bytes": budget.used_bytes,
            "pool_bytes_limit": budget.limit_bytes,
        }
    )


async def asset(request: Request) -> Response:
    """The component's script and style, and plotly.js from the installed package."""
    name = request.path_params["name"]
    if name not in _KINDS:
        return Response("no such file", status_code=404, media_type="text/plain")
    body, kind = _asset(name), _KINDS[name]
    return Response(
        body,
        media_type=kind,
        headers={
            "Content-Encoding": "gzip",
            "Cache-Control": "public, max-age=31536000, immutable",
            "X-Content-Type-Options": "nosniff",
        },
    )


@lru_cache(maxsize=1)
def asset_version() -> str:
    """Changes when the component's files or plotly do; part of their addresses."""
    digest = hashlib.sha256()
    for name in ("live.js", "picture.js", "live.css"):
        digest.update((Path(__file__).with_name(name)).read_bytes())
    from plotly.offline import get_plotlyjs_version

    digest.update(get_plotlyjs_version().encode())
    return digest.hexdigest()[:12]


async def live_channel(socket: WebSocket) -> None:
    """Frames out; orders and acknowledgements in. Ends with the viewer or its runner."""
    runner = hub().by_token(socket.path_params["token"])
    if runner is None or not _same_origin(socket):
        await socket.close(code=4404 if runner is None else 4403)
        return
    await socket.accept()
    viewer = _Viewer(runner)
    listener = asyncio.create_task(_listen(socket, viewer))
    try:
        while runner.alive and not listener.done():
            frame = await viewer.next_frame()
            if frame is not None:
                await socket.send_bytes(frame)
            await asyncio.sleep(_POLL_SECONDS if viewer.ready.is_set() else 0)
        await socket.close(code=4410)
    except (WebSocketDisconnect, RuntimeError):
        pass  # the viewer left in mid-frame
    finally:
        listener.cancel()


class _Viewer:
    """One browser: what it wants, what it has, and whether it is ready for more."""

    def __init__(self, runner: LiveRunner) -> None:
        self.runner = runner
        self.builder = FrameBuilder()
        self.ready = asyncio.Event()
        self.visible = True
        self._version = -1
        self._last = 0.0

    async def next_frame(self) -> bytes | None:
        """Wait until the browser is ready and there is news; None when there is none yet."""
        try:
            await asyncio.wait_for(self.ready.wait(), _IDLE_SECONDS)
        except TimeoutError:
            return None
        if not self.visible:
            await asyncio.sleep(0.2)
            return None
        wait = self._last + FRAME_SECONDS - asyncio.get_running_loop().time()
        if wait > 0:
            await asyncio.sleep(wait)
        published = self.runner.latest()
        if published.version == self._version:
            return None
        self._version = published.version
        self._last = asyncio.get_running_loop().time()
        self.ready.clear()
        return await asyncio.to_thread(self.builder.build, published)

    def obey(self, words: dict) -> None:
        """An order from the browser. Unknown ones are ignored."""
        if words.get("ready"):
            self.ready.set()
        theme, colour = words.get("theme"), words.get("colour")
        if isinstance(theme, str) and theme in THEMES:
            self.builder.theme, self._version = theme, -1
        if colour in COLOUR_BY:
            self.builder.colour_by, self._version = colour, -1
        if isinstance(words.get("visible"), bool):
            self.visible = words["visible"]
        act = {
            "play": self.runner.start,
            "pause": self.runner.pause,
            "step": self.runner.step,
            "reset": self.runner.reset,
        }.get(str(words.get("do")))
        if act:
            act()


async def _listen(socket: WebSocket, viewer: _Viewer) -> None:
    while True:
        try:
            text = await socket.receive_text()
            words = json.loads(text) if len(text) <= _WORDS else None
        except (ValueError, KeyError, RecursionError):
            continue  # no JSON, no text, or nested too deep
        except (WebSocketDisconnect, RuntimeError):
            return
        if isinstance(words, dict):
            viewer.obey(words)


def _same_origin(socket: WebSocket) -> bool:
    """This route is outside Streamlit's own origin check."""
    origin = socket.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == socket.headers.get("host")


@lru_cache(maxsize=len(_KINDS))
def _asset(name: str) -> bytes:
    """One of `_KINDS`, gzipped."""
    if name == "plotly.js":
        from plotly.offline import get_plotlyjs

        return gzip.compress(get_plotlyjs().encode(), 6)
    return gzip.compress(Path(__file__).with_name(name).read_bytes(), 6)


def _preload() -> None:
    try:
        hub().backend()
        _asset("plotly.js")
        warm_up()
    except KvvizError as error:
        log.warning("kvviz: %s", error)  # the page shows it too
    gc.collect()
    gc.freeze()  # torch's objects are never garbage: keep the collector off them


def warm_up() -> None:
    """One step of small lanes: loads the compiled kernels and plans torch's products."""
    from kvviz.build import build_lanes
    from kvviz.config import RunConfig

    config = RunConfig().replace(
        {"memory.slots": 512, "memory.context": 512, "engine.check_every": 1}
    )
    lanes = build_lanes(config, hub().backend())
    for _ in range(24):
        lanes.step()
    lanes.close()
