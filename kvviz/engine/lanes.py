"""Several lanes on one clock: the same stream of requests, the same weights, other memory."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kvviz.caches.layouts import lane_config
from kvviz.config import RunConfig
from kvviz.engine.engine import Engine
from kvviz.records import Event
from kvviz.workloads.stream import RequestStream

log = logging.getLogger(__name__)


@dataclass
class Comparison:
    """Requests that every lane has finished, and how many of them got the same tokens."""

    compared: int = 0
    equal: int = 0


class Lanes:
    """Steps every engine once a step. Lanes differ in memory only.

    `isolated`: an error in a lane stops that lane alone, and is its engine's `fault`; it is
    raised only when no lane is left that could go on.
    """

    def __init__(
        self, engines: dict[str, Engine], stream: RequestStream, config: RunConfig
    ) -> None:
        self.isolated = False
        self.engines = engines
        self.stream = stream
        self.config = config
        self.step_count = 0
        self.comparison = Comparison()
        self._cursor = dict.fromkeys(engines, 0)
        self._apart: set[int] = set()

    def step(self) -> None:
        for name, engine in self.engines.items():
            if engine.fault is not None:
                engine.stand()
                continue
            try:
                self._step(name, engine)
            except Exception as error:
                if not self.isolated or len(self.going) == 1:
                    raise
                log.exception("lane %s failed in step %d", name, self.step_count)
                engine.stop(self.step_count, error)
        self.step_count += 1
        going = self.going
        self.stream.forget(min([self._cursor[name] for name in going]))
        outputs = [engine.outputs for engine in going.values()]
        if any(outputs):
            self._compare(outputs)

    @property
    def going(self) -> dict[str, Engine]:
        """The engines that no fault has stopped, by lane."""
        return {name: e for name, e in self.engines.items() if e.fault is None}

    def reconfigure(self, config: RunConfig) -> None:
        """Take settings that need no restart; the mix holds from the next arrival on."""
        live, restart = self.config.differences(config)
        assert not restart, f"these need a restart: {restart}"
        if not live:
            return
        if any(path.startswith("mix.") for path in live):
            self.stream.reconfigure(config.mix)
            self.stream.redraw(max(self._cursor.values()), self.step_count)
        for name, engine in self.going.items():
            engine.reconfigure(lane_config(name, config))
            engine.scheduler.ledger.events.append(
                Event(self.step_count, "change", text=", ".join(live))
            )
        self.config = config

    def finish(self, request_id: int) -> bool:
        """End a request with its next token, in each lane that still has it. The lanes may be
        at different tokens, so its outputs are not compared. False when no lane has it."""
        found = [e for e in self.going.values() if e.shorten(request_id)]
        if found:
            self._apart.add(request_id)
            self._note(request_id, "ended by hand")
        return bool(found)

    def add(self, slots: int) -> int:
        """A request that will hold so many slots arrives in every lane, before those that none
        has taken yet; they are drawn anew. Its id."""
        cursor = max(self._cursor.values())
        request = self.stream.insert(cursor, self.step_count, slots)
        self._note(request.id, f"added by hand: {request.life:,} slots")
        return request.id

    def hurry(self, hurried: bool) -> None:
        """Check no map in the steps to come, for nobody sees them; at the end, check it once."""
        for engine in self.engines.values():
            engine.hurried = hurried
        if not hurried:
            for engine in self.going.values():
                engine.check_map()

    def check_maps(self) -> None:
        for engine in self.engines.values():
            engine.check_map()

    def close(self) -> None:
        for engine in self.engines.values():
            engine.close()

    def _step(self, name: str, engine: Engine) -> None:
        requests = self.stream.take(self._cursor[name], self.step_count, engine.outstanding)
        self._cursor[name] += len(requests)
        engine.submit(requests)
        engine.step()

    def _note(self, request_id: int, text: str) -> None:
        for engine in self.engines.values():
            engine.scheduler.ledger.events.append(
                Event(self.step_count, "change", request_id, text=text)
            )

    def _compare(self, outputs: list[dict[int, bytes]]) -> None:
        """Compare and forget outputs that all lanes have. A request that some lane turned
        away stays with the others until there are too many of them."""
        if len(outputs) < 2 or not all(outputs):
            self._trim()
            return
        for request in set.intersection(*(set(o) for o in outputs)):
            first, *others = [o.pop(request) for o in outputs]
            if request in self._apart:
                continue
            self.comparison.compared += 1
            self.comparison.equal += all(first == other for other in others)
        self._trim()

    def _trim(self) -> None:
        for engine in self.engines.values():
            while len(engine.outputs) > 4096:
                del engine.outputs[next(iter(engine.outputs))]
