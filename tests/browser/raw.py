"""A session without a browser: Streamlit's own WebSocket, and the live channel beside it."""

from __future__ import annotations

import json
import re
import time
import zlib
from socket import SHUT_RDWR
from typing import Any

from streamlit.proto.BackMsg_pb2 import BackMsg
from websockets.sync.client import ClientConnection, connect

_TOKEN = re.compile(rb'"token"\s*:\s*"([\w-]{32})"')


class RawSession:
    """Opens the page at this address; `token` is its runner's, once the script has run."""

    def __init__(self, server: str, query: str = "") -> None:
        self._address = server.replace("http", "ws", 1)
        self._socket = _open(f"{self._address}/_stcore/stream", subprotocols=["streamlit"])
        self._channel: ClientConnection | None = None
        self.rerun(query)

    def rerun(self, query: str = "") -> None:
        """The script runs again, as after a click."""
        message = BackMsg()
        message.rerun_script.query_string = query
        self._socket.send(message.SerializeToString())

    def token(self, seconds: float = 20.0) -> str:
        """Waits for the live view. Raises AssertionError when it does not come in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = _TOKEN.search(self._socket.recv(timeout=seconds))
            if found:
                return found.group(1).decode()
        raise AssertionError("the page brought no live view")

    def says(self, words: str, seconds: float = 20.0) -> None:
        """Waits until the page shows these words."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if words.encode() in self._socket.recv(timeout=seconds):
                return
        raise AssertionError(f"the page never said {words!r}")

    def look(self, token: str) -> None:
        """Opens the live channel and asks for a frame, which is not waited for."""
        self._channel = _open(f"{self._address}/kvviz/live/{token}")
        self._channel.send(json.dumps({"ready": True, "visible": True}))

    def ready(self) -> None:
        """Asks for the next frame."""
        assert self._channel is not None
        self._channel.send(json.dumps({"ready": True}))

    def frame(self) -> dict[str, Any]:
        assert self._channel is not None
        return json.loads(zlib.decompress(self._channel.recv(timeout=20)))

    def close(self) -> None:
        """As a tab that is closed."""
        for socket in (self._channel, self._socket):
            if socket is not None:
                socket.close()

    def cut(self) -> None:
        """As a network that goes away: no word of farewell, and what was under way is lost."""
        for socket in (self._channel, self._socket):
            if socket is not None:
                socket.socket.shutdown(SHUT_RDWR)


def _open(address: str, **words: Any) -> ClientConnection:
    return connect(address, max_size=None, open_timeout=30, **words).__enter__()
