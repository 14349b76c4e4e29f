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
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from kvviz.errors import KvvizError
from kvviz.live import log as events
from kvviz.live.hub import Hub
from kvviz.live.kept import keep
from kvviz.live.limits import Limits
from kvviz.live.runner import THREAD_NAME
from kvviz.recording.files import SUFFIX
from kvviz.ui.files import WRITERS
from kvviz.ui.viewer import Viewer

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.02
_IDLE_SECONDS = 2.0
_ANSWER_SECONDS = 10.0
_OWN = (
    "live.js",
    "scaffold.js",
    "dom.js",
    "status.js",
    "words.js",
    "tips.js",
    "plots.js",
    "bitmap.js",
    "slots.js",
    "scrub.js",
    "inspector.js",
    "log.js",
    "link.js",
    "moments.js",
    "cursor.js",
    "keep.js",
    "redraw.js",
    "picture.js",
    "live.css",
)  # files beside this one
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_KINDS = {name: _TYPES[Path(name).suffix] for name in ("plotly.js", *_OWN)}
_KEPT_THREADS = ("AnyIO worker", "asyncio_")
_WORDS = 4096  # longest message taken from a browser, in bytes


@st.cache_resource(show_spinner=False)
def hub() -> Hub:
    """The process's hub. Streamlit's cache keeps it when an edited module is imported anew; a
    module's own global would be lost then, with every runner in it."""
    return Hub.of(Limits.of())


@asynccontextmanager
async def lifespan(_app: object) -> AsyncIterator[dict]:
    """Load torch, the kernels and the model while nobody has asked for a page yet."""
    threading.Thread(target=_preload, name="kvviz-preload", daemon=True).start()
    try:
        yield {}
    finally:
        hub().close()


def base_path() -> str:
    """What stands before every address of this server: "/", or "/team/" behind a proxy."""
    base = st.get_option("server.baseUrlPath").strip("/")
    return f"/{base}/" if base else "/"


def routes() -> list[BaseRoute]:
    """Streamlit puts its base path before its own routes only."""
    at = f"{base_path()}kvviz"
    return [
        WebSocketRoute(f"{at}/live/{{token}}", live_channel),
        Route(f"{at}/assets/{{name}}", asset),
        Route(f"{at}/events/{{token}}.{{kind}}", download),
        Route(f"{at}/keep/{{token}}", keep_run, methods=["POST"]),
        Route(f"{at}/kept/{{name}}.kvviz", kept_file),
        Route(f"{at}/memory/{{token}}.pickle", snapshot),
        Route(f"{at}/status", status),
    ]


async def status(_request: Request) -> Response:
    """Runner threads alive in this process, all threads but those that the server keeps for its
    next requests, and what the pools hold."""
    budget = hub().budget
    names = [thread.name for thread in threading.enumerate()]
    return JSONResponse(
        {
            "runners": names.count(THREAD_NAME),
            "threads": sum(not name.startswith(_KEPT_THREADS) for name in names),
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


async def download(request: Request) -> Response:
    """The events of a session's lanes as a file."""
    kind = request.path_params["kind"]
    runner = hub().by_token(request.path_params["token"])
    if runner is None or kind not in WRITERS:
        return Response("no such file", status_code=404, media_type="text/plain")
    try:
        future = runner.ask(lambda lanes, past, newest: (events.table(lanes), newest.step))
        rows, step = await asyncio.wait_for(asyncio.wrap_future(future), _ANSWER_SECONDS)
    except (KvvizError, TimeoutError) as error:
        words = str(error) or "The lanes are busy. Try again."
        return Response(words, status_code=503, media_type="text/plain")
    body = await asyncio.to_thread(WRITERS[kind].write, rows)
    name = f"kvviz-events-step{step}.{kind}"
    return Response(
        body,
        media_type=WRITERS[kind].media_type,
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def keep_run(request: Request) -> Response:
    """The steps that a session's run keeps, as a recording on the shelf: its name and steps."""
    runner = hub().by_token(request.path_params["token"])
    step = request.query_params.get("step", "")
    if runner is None or not _same_origin(request):
        return Response("no such run", status_code=404, media_type="text/plain")
    shown = int(step) if step.isascii() and step.isdigit() and len(step) < 13 else 0
    try:
        made = await asyncio.to_thread(keep, runner, shown)
        name = hub().shelf.put(made)
    except KvvizError as error:
        return Response(str(error), status_code=503, media_type="text/plain")
    return JSONResponse(
        {
            "id": name,
            "first": made.first,
            "last": made.last,
            "shown": made.shown,
            "bytes": len(made.data),
        }
    )


async def kept_file(request: Request) -> Response:
    """A recording from the shelf."""
    kept = hub().shelf.get(request.path_params["name"])
    if kept is None:
        words = "This recording is no longer kept. Save the run again."
        return Response(words, status_code=404, media_type="text/plain")
    return Response(
        kept.data,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{kept.name}{SUFFIX}"'},
    )


async def snapshot(request: Request) -> Response:
    """Torch's memory snapshot of the GPU, for pytorch.org/memory_viz."""
    if hub().by_token(request.path_params["token"]) is None:
        return Response("no such file", status_code=404, media_type="text/plain")
    try:
        body = await asyncio.to_thread(hub().memory_snapshot)
    except KvvizError as error:
        return Response(str(error), status_code=404, media_type="text/plain")
    return Response(
        body,
        media_type="application/octet-stream",
        headers={"Content-Disposition": 'attachment; filename="kvviz-memory.pickle"'},
    )


@lru_cache(maxsize=1)
def asset_version() -> str:
    """Changes when the component's files or plotly do; part of their addresses."""
    digest = hashlib.sha256()
    for name in _OWN:
        digest.update((Path(__file__).with_name(name)).read_bytes())
    from plotly.offline import get_plotlyjs_version

    digest.update(get_plotlyjs_version().encode())
    return digest.hexdigest()[:12]


async def live_channel(socket: WebSocket) -> None:
    """Frames out; orders and acknowledgements in. Ends with the viewer or its runner."""
    runner = hub().by_token(socket.path_params["token"])
    if not _same_origin(socket):
        await socket.close(code=4403)
        return
    await socket.accept()
    if runner is None:  # a browser is told the code of an open channel only
        await socket.close(code=4404)
        return
    viewer = Viewer(runner)
    listener = asyncio.create_task(_listen(socket, viewer))
    try:
        while runner.alive and not listener.done():
            frame = await viewer.next_frame()
            if frame is not None:
                await socket.send_bytes(frame)
            await (viewer.pause(_POLL_SECONDS) if viewer.ready.is_set() else asyncio.sleep(0))
        await socket.close(code=4410)
    except (WebSocketDisconnect, RuntimeError):
        pass  # the viewer left in mid-frame
    finally:
        listener.cancel()


async def _listen(socket: WebSocket, viewer: Viewer) -> None:
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


def _same_origin(asked: HTTPConnection) -> bool:
    """These routes are outside Streamlit's own origin check."""
    origin = asked.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == asked.headers.get("host")


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
