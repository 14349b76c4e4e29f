"""One browser at the live channel: what it wants to see, what it has, whether it is ready."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from kvviz.errors import KvvizError
from kvviz.live.published import Published
from kvviz.live.runner import LiveRunner
from kvviz.ui.asked import Asked
from kvviz.ui.frames import FrameBuilder, pinned, pinned_said, whole_run
from kvviz.views.findings import run_said
from kvviz.views.memory_map import COLOUR_BY
from kvviz.views.theme import THEMES, Figure, Theme

log = logging.getLogger(__name__)

FRAME_SECONDS = 0.1
_LOOK_SECONDS = 0.03  # between frames of a past that is being scrubbed through
_SCRUB_SECONDS = 0.6  # a look so soon after another is one of many: its charts can wait
_SETTLED_SECONDS = 0.2
_IDLE_SECONDS = 2.0
RUN_COLUMNS = 500  # of the picture of the whole run
_ANSWER_SECONDS = 5.0  # a step of the lanes may be under way
Draw = Callable[[Theme, str], dict[str, Figure]]  # (theme, colour_by) -> figures by name
REFUSALS = {"next": True, "previous": False}


class Viewer:
    """`look` is the step it looks at, or None for the newest."""

    def __init__(self, runner: LiveRunner) -> None:
        self.runner = runner
        self.builder = FrameBuilder()
        self.ready = asyncio.Event()
        self.told = asyncio.Event()  # an order came since the last pause
        self.visible = True
        self.look: int | None = None
        self._seek: bool | None = None
        self.asked = Asked()
        self._pinned: tuple[Any, ...] = ()
        self._whole: tuple[Any, ...] = ()
        self._shown: tuple[int, int | None] | None = None
        self._last = 0.0
        self._owes_charts = False

    async def next_frame(self) -> bytes | None:
        """Wait until the browser is ready and there is news; None when there is none yet."""
        try:
            await asyncio.wait_for(self.ready.wait(), _IDLE_SECONDS)
        except TimeoutError:
            return None
        if not self.visible:
            await asyncio.sleep(0.2)
            return None
        pause = FRAME_SECONDS if self.look is None else _LOOK_SECONDS
        wait = self._last + pause - asyncio.get_running_loop().time()
        if wait > 0:
            await asyncio.sleep(wait)
        published = self.runner.latest()
        now = asyncio.get_running_loop().time()
        owed = self._owes_charts and now - self._last >= _SETTLED_SECONDS
        known = self._shown == (published.version, self.look)
        if known and self._seek is None and not owed:
            return None
        moved = self._shown is None or self._shown[1] != self.look
        light = moved and self.look is not None and now - self._last < _SCRUB_SECONDS
        if self._seek is not None or self.look is not None:
            published = await self._past(published)
        self._shown = published.version, self.look
        self._last = asyncio.get_running_loop().time()
        self.ready.clear()
        more = await self._answers(published) if self.asked.due(published, self._last) else {}
        figures, more["said"] = await self._figures(published)
        self._owes_charts = light
        build = partial(self.builder.build, published, more, figures, light=light)
        return await asyncio.to_thread(build)

    async def pause(self, seconds: float) -> None:
        """Wait so long, or until an order comes."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.told.wait(), seconds)
        self.told.clear()

    def obey(self, words: dict[str, Any]) -> None:
        """An order from the browser. Unknown ones are ignored."""
        self.told.set()
        if words.get("ready"):
            self.ready.set()
        theme, colour = words.get("theme"), words.get("colour")
        if isinstance(theme, str) and theme in THEMES:
            self.builder.theme, self._shown = theme, None
        if colour in COLOUR_BY:
            self.builder.colour_by, self._shown = colour, None
        if isinstance(words.get("visible"), bool):
            self.visible = words["visible"]
        if "look" in words:
            self._look(words["look"])
        if self.asked.obey(words):
            self._shown = None
        act = {
            "play": self.runner.start,
            "pause": self.runner.pause,
            "step": self.runner.step,
            "reset": self.runner.reset,
            "tensors": self.runner.onto_tensors,
        }.get(str(words.get("do")))
        if act:
            self.look = None
            act()
        self._disturb(words)

    def _disturb(self, words: dict[str, Any]) -> None:
        request, slots = words.get("finish"), words.get("add")
        if type(request) is int and 0 <= request < 1 << 40:
            self.runner.finish(request)
        if type(slots) is int and 1 <= slots <= 1 << 20:
            self.runner.add(slots)

    def _look(self, step: object) -> None:
        if step is None or (type(step) is int and step >= 0):
            self.look, self._seek = step, None
        elif isinstance(step, str) and step in REFUSALS:
            self._seek = REFUSALS[step]

    async def _past(self, newest: Published) -> Published:
        """The past step that is wanted; the newest when the run cannot tell."""
        seek, self._seek = self._seek, None
        look = newest.step if self.look is None else self.look
        try:
            if seek is not None:
                look = self.look = await self._answer(self.runner.refusal(look, seek))
            return await self._answer(self.runner.past(look))
        except Exception as error:  # a picture of the newest step is better than none
            _note(error)
            self.look = None
            return newest

    async def _answers(self, published: Published) -> dict[str, Any]:
        asked, step = self.asked.copy(), published.step
        try:
            return await self._answer(
                self.runner.ask(lambda lanes, past, _: asked.answer(lanes, past, step))
            )
        except Exception as error:  # a question that fails must not end the page
            _note(error)
            return {}

    async def _figures(self, published: Published) -> tuple[Draw, dict[str, str]]:
        """Pictures of the past that were asked for, once for each wish, and what they show."""
        pin, run = self.asked.pin, self.asked.run
        found: list[Draw] = []
        said: dict[str, str] = {}
        look = self.builder.theme, self.builder.colour_by
        try:
            if pin is not None and self._pinned != (pin, *look):
                then = await self._answer(self.runner.past(pin))
                found.append(lambda theme, by: pinned(then, theme, by))
                said |= pinned_said(then)
                self._pinned = (pin, *look)
            if run in published.lanes and self._wants_run(published, run, *look):
                sample = await self._answer(
                    self.runner.ask(lambda lanes, past, _: past.sample(RUN_COLUMNS, run))
                )
                found.append(lambda theme, by: {"run": whole_run(sample, theme, by)})
                said["run"] = run_said(run, [shot for shot, _ in sample])
                self._whole = (run, (published.first, published.last), *look)
        except Exception as error:  # as above
            _note(error)
        if run is None:
            self._whole = ()
        return partial(_all_of, found), said

    def _wants_run(self, published: Published, *wish: str) -> bool:
        """Once while the run goes on; anew when it stands elsewhere, or looks otherwise."""
        if not self._whole or self._whole[0] != wish[0] or self._whole[2:] != wish[1:]:
            return True
        stands = published.state != "running" or published.looking
        return stands and self._whole[1] != (published.first, published.last)

    async def _answer(self, future: Any) -> Any:
        return await asyncio.wait_for(asyncio.wrap_future(future), _ANSWER_SECONDS)


def _all_of(parts: list[Draw], theme: Theme, colour_by: str) -> dict[str, Figure]:
    return {name: figure for part in parts for name, figure in part(theme, colour_by).items()}


def _note(error: Exception) -> None:
    """For the server's log, unless it is what happens when a run is busy or a step is gone."""
    if not isinstance(error, KvvizError | TimeoutError | KeyError | ValueError):
        log.error("a viewer's question failed", exc_info=error)
