"""Frames: what a viewer's browser gets. Published in, compressed JSON out.

A figure that did not change since the viewer's last frame is not sent again. Maps go with every
frame. While the engine runs, each of `PARTS` goes at most once in `CHART_SECONDS`, and where frames
follow each other closely one of them in a frame: no frame is much larger than the others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from kvviz import __version__
from kvviz.caches.layouts import LANES, lane_config
from kvviz.config import RunConfig
from kvviz.live.needs import link_needs
from kvviz.live.published import WINDOW, LaneView, Published
from kvviz.model.known import SHIPPED_NAME
from kvviz.records import HOLE, Columns, Event, Snapshot
from kvviz.ui.chips import chips
from kvviz.ui.packed import as_json, column, deflated
from kvviz.views import breakdown, capacity, holes, memory_map, time_map, words
from kvviz.views.findings import charts_said, map_said
from kvviz.views.number import Number
from kvviz.views.numbers import GROUPS, HEADLINE, numbers, side_by_side
from kvviz.views.theme import THEMES, Figure, Theme, number
from kvviz.views.unusable import unusable

CHART_SECONDS = 0.5
PARTS = ("charts", "numbers", "hover")
_HOVER_ROWS = 8192  # up to that the columns for hovering go with every frame
_MERGED_ABOVE = 1024  # rows
_HOVER_MOST = 1 << 16  # rows
_WAITING = 12  # of the queue, named on the page


class FrameBuilder:
    """One a viewer; remembers what that viewer has. `theme` and `colour_by` may change."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.theme = "light"
        self.colour_by = "request"
        self._clock = clock
        self._sent: dict[str, int] = {}
        self._part_at = dict.fromkeys(PARTS, -math.inf)
        self._built_at = -math.inf
        self._look: tuple[Any, ...] = ()

    def build(
        self,
        published: Published,
        more: dict[str, Any] | None = None,
        extra: Callable[[Theme, str], dict[str, Figure]] = lambda theme, colour_by: {},
        *,
        light: bool = False,
    ) -> bytes:
        """The next frame: zlib-compressed JSON, see `live.js` for what reads it. `more`: answers
        to what this viewer asked, and `said`: names of the figures of `extra`;
        `extra(theme, colour_by)`: figures that it asked for; `light`: without the parts, which
        another frame will bring."""
        theme = THEMES[self.theme]
        parts = () if light else self._due(published)
        frame = head(published, theme) | (more or {})
        figures = maps(published, theme, self.colour_by)
        if "charts" in parts:
            figures |= charts(published, theme)
            shown = {name: lane.snapshot for name, lane in published.lanes.items()}
            if shown:
                frame["said"] = frame["said"] | charts_said(shown, asked(shown))
        if "numbers" in parts:
            frame["numbers"] = tables(published)
        figures |= extra(theme, self.colour_by)
        frame["hover"] = {
            name: found
            for name, lane in published.lanes.items()
            if ("hover" in parts or _rows(lane) <= _HOVER_ROWS) and (found := hover(lane))
        }
        return deflated(as_json(frame)[:-1] + b',"figures":{' + self._changed(figures) + b"}}")

    def _due(self, published: Published) -> Sequence[str]:
        """The parts that go with this frame."""
        now, built = self._clock(), self._built_at
        self._built_at = now
        look = (self.theme, self.colour_by, published.state, published.looking)
        # Where it does not run, no later frame would bring them
        settled = published.state != "running" or published.looking
        parts: Sequence[str] = PARTS
        if look == self._look and not settled:
            late = [part for part in PARTS if now - self._part_at[part] >= CHART_SECONDS]
            closely = now - built < CHART_SECONDS / 2
            parts = sorted(late, key=self._part_at.__getitem__)[: 1 if closely else None]
        self._look = look
        self._part_at.update(dict.fromkeys(parts, now))
        return parts

    def _changed(self, figures: dict[str, Figure]) -> bytes:
        """The figures that this viewer does not have yet, as the inside of a JSON object: each
        is written out once, for comparing and for sending."""
        changed = []
        for name, figure in figures.items():
            text = as_json(figure)
            if self._sent.get(name) != hash(text):
                self._sent[name] = hash(text)
                changed.append(as_json(name) + b":" + text)
        return b",".join(changed)


def head(published: Published, theme: Theme) -> dict[str, Any]:
    """Everything that is text: verdict, the numbers over the maps, status, stamp. The tables of
    numbers do not come with every frame."""
    stopped = published.stopped
    going = {name: lane for name, lane in published.lanes.items() if name not in stopped}
    snapshots = {name: lane.snapshot for name, lane in going.items()}
    last = {
        name: next((e for e in lane.refusals if e.verdict == "fragmented"), None)
        for name, lane in going.items()
    }
    return {
        "version": published.version,
        "step": published.step,
        "state": published.state,
        "message": published.message,
        "stopped": {
            name: f"{name.capitalize()} stopped in step {number(fault.step)}: "
            f"{fault.text.rstrip('.')}. "
            "Its map is the last one before; Reset starts all lanes anew."
            for name, fault in stopped.items()
        },
        "theme": theme.name,
        "verdict": asdict(words.verdict(snapshots, last)) if snapshots else None,
        "lanes": {
            name: {
                "colour": theme.lanes[name],
                "what": _what(name, published.config),
                "key": memory_map.legend(lane.snapshot),
                "alt": memory_map.map_alt(lane.snapshot, name),
                "figures": [vars(n) for n in _numbers(lane, None, (HEADLINE,))],
            }
            for name, lane in published.lanes.items()
        },
        "status": chips(published),
        "legend": _legend(theme),
        "stamp": stamp(published),
        "numbers": None,
        "said": {},
        "snapshots_memory": published.memory is not None,
        "past": {
            "looking": published.looking,
            "first": published.first,
            "last": published.last,
            "replayed": published.replayed,
            "changes": list(published.changes[:8]),
            "needs": link_needs(published.config),
        },
    }


def tables(published: Published) -> dict[str, dict[str, dict[str, Any]]]:
    """Every number that does not stand over a map: {group: {row: {lane: a Number}}}."""
    ask = asked({name: lane.snapshot for name, lane in published.lanes.items()})
    groups = tuple(group for group in GROUPS if group != HEADLINE)
    found = side_by_side(
        {name: _numbers(lane, ask, groups) for name, lane in published.lanes.items()}
    )
    return {
        group: {row: {name: vars(n) for name, n in cells.items()} for row, cells in rows.items()}
        for group, rows in found.items()
    }


def _numbers(lane: LaneView, ask: int | None, groups: tuple[str, ...]) -> list[Number]:
    return numbers(lane.snapshot, ask, {"tokens_per_second": lane.tokens_per_second}, groups)


def maps(published: Published, theme: Theme, colour_by: str) -> dict[str, Figure]:
    return {
        f"map-{name}": memory_map.memory_map(
            lane.snapshot,
            theme,
            published.hues,
            name=name,
            colour_by=colour_by,
            ghost=lane.snapshot.head,
        )
        for name, lane in published.lanes.items()
    }


def pinned(published: Published, theme: Theme, colour_by: str) -> dict[str, Figure]:
    """The maps of a pinned moment, under names of their own."""
    return {f"pin-{name}": f for name, f in _by_lane(maps(published, theme, colour_by)).items()}


def pinned_said(published: Published) -> dict[str, str]:
    """What those maps show, in words."""
    return {
        f"pin-{name}": map_said(f"Pinned step {number(published.step)}, {name}", lane.snapshot)
        for name, lane in published.lanes.items()
    }


def whole_run(
    sample: list[tuple[Snapshot, dict[int, int]]], theme: Theme, colour_by: str
) -> Figure:
    """Time by address, of one lane."""
    return time_map.time_map(
        [time_map.column(shot, hues, colour_by) for shot, hues in sample],
        [shot.step for shot, _ in sample],
        theme,
        capacity=sample[0][0].capacity,
        colour_by=colour_by,
    )


def _by_lane(figures: dict[str, Figure]) -> dict[str, Figure]:
    return {name.removeprefix("map-"): figure for name, figure in figures.items()}


def charts(published: Published, theme: Theme) -> dict[str, Figure]:
    lanes = published.lanes
    if not lanes:
        return {}
    snapshots = {name: lane.snapshot for name, lane in lanes.items()}
    memory = published.config.memory
    ask = asked(snapshots)
    return {
        "time": capacity.over_time(
            {n: (v.series.step, v.series.free, v.series.admissible) for n, v in lanes.items()},
            {n: _in_window(v, (*v.later, *v.refusals)) for n, v in lanes.items()},
            theme,
            window=WINDOW,
            capacity=memory.slots,
            moves={n: _in_window(v, v.moves) for n, v in lanes.items()},
            cursor=published.step if published.looking else None,
        ),
        "size": capacity.over_size(snapshots, theme, largest=memory.context, ask=ask),
        "holes": holes.histogram(snapshots, theme, ask=ask),
        "unusable": unusable(snapshots, theme, largest=memory.context, ask=ask),
        "bytes": breakdown.breakdown(snapshots, theme, ask=ask or 1),
    }


def _in_window(lane: LaneView, events: tuple[Event, ...]) -> list[Event]:
    """Those on the curves over time: with the step that is looked at only the cursor moves."""
    first = int(lane.series.step[0]) if len(lane.series.step) else 0
    return [event for event in events if event.step >= first]


def hover(lane: LaneView) -> dict[str, Any] | None:
    """Columns for the pointer: which row lies under a cell, and what its request is. None where
    they would be megabytes."""
    s = lane.snapshot
    c = s.columns
    if _rows(lane) > _MERGED_ABOVE:
        first = _runs(c)
        if len(first) > _HOVER_MOST:
            return None
        c = _merged(c, first)
    place = memory_map.ghost_place(s, s.head)
    return {
        "ghost": [int(s.waiting_id[0]), *place] if place else None,
        "waiting": s.waiting_id[:_WAITING].tolist(),
        "columns": memory_map.Grid.of(s.capacity).columns,
        "grain": s.grain,
        "paged": s.paged,
        # They tile the pool, so where each starts is the sum of those before
        "size": column(c.size),
        "used": column(c.used),
        "owner": column(c.owner),
        "requests": {
            int(i): row
            for i, *row in zip(
                s.seq_id.tolist(),
                s.seq_prompt.tolist(),
                s.seq_used.tolist(),
                s.seq_held.tolist(),
                s.seq_life.tolist(),
                s.seq_since.tolist(),
                strict=True,
            )
        },
    }


def _merged(c: Columns, first: np.ndarray) -> Columns:
    """Each of these runs as one row, without what is cached: many small blocks would fill the
    frame."""
    start = c.start[first]
    size = np.diff(start, append=c.start[-1] + c.size[-1])
    used = np.where(c.used[first] == c.size[first], size, c.used[first])
    return Columns(start, size, used, c.owner[first], c.refs[first])


def _runs(c: Columns) -> np.ndarray:
    """The first row of each run: neighbours of one owner that are all full, or all free."""
    plain = (c.used == c.size) | (c.owner == HOLE)
    new = ~(plain[1:] & plain[:-1])
    new |= c.owner[1:] != c.owner[:-1]
    new |= c.refs[1:] != c.refs[:-1]
    return np.concatenate([[0], new.nonzero()[0] + 1])


def stamp(published: Published) -> str:
    """Settings that matter, seed, step, device, version: enough to make the picture again."""
    c = published.config
    return (
        f"kvviz {__version__} | {c.preset or 'own settings'} | seed {c.seed} | "
        f"step {number(published.step)} | pool {number(c.memory.slots)} slots | "
        + "".join(f"{name}: {_what(name, published.config)} | " for name in c.lane_names)
        + f"{published.device} | model {Path(c.model or SHIPPED_NAME).name} | "
        + f"stream {published.stream_hash}{_disturbed(published)}"
    )


def _disturbed(published: Published) -> str:
    """Settings, seed and step alone do not make such a run again."""
    if not published.changes:
        return ""
    steps = ", ".join(number(step) for step in published.changes[:3])
    more = f" and {len(published.changes) - 3} more" if len(published.changes) > 3 else ""
    return f" | changed while it ran, at step {steps}{more}"


@lru_cache(maxsize=64)
def _what(name: str, config: RunConfig) -> str:
    """The lane's settings in a few words."""
    return WORDS[LANES[name].layout](lane_config(name, config))


def _contiguous(c: RunConfig) -> str:
    allocator = c.contiguous.allocator
    place = f"{c.contiguous.fit} fit" if allocator == "fits" else allocator
    return f"one region a request, {place}, reserve {c.contiguous.reservation}"


def _paged(c: RunConfig) -> str:
    sharing = "prefixes shared, " if c.paged.prefix_sharing else ""
    return f"blocks of {c.paged.block_size} slots, {sharing}admitted by {c.paged.admission}"


def _cells(c: RunConfig) -> str:
    if c.cells.mode == "split":
        return f"{c.cells.buffers} equal buffers, one request each"
    if c.cells.placement == "adjacent":
        return "one buffer, a batch needs adjacent cells or is halved"
    return "one buffer, any free cells"


def _virtual(c: RunConfig) -> str:
    return f"a range of addresses each, pages of {c.virtual.page_bytes >> 10} KiB mapped on demand"


WORDS: dict[str, Callable[[RunConfig], str]] = {
    "contiguous": _contiguous,
    "paged": _paged,
    "cells": _cells,
    "virtual": _virtual,
}


def _legend(theme: Theme) -> dict[str, str]:
    return {
        "written": theme.written,
        "reserved": theme.reserved,
        "internal": theme.internal,
        "external": theme.external,
        "usable": theme.usable,
        "hole": theme.hole,
        "cached": theme.cached,
        "free": theme.quiet,
        "stuck": theme.stuck,
        "alarm": theme.alarm,
        **theme.lanes,
    }


def asked(snapshots: dict[str, Any]) -> int | None:
    """Slots the next request asks for: the refused head, else the head of a queue."""
    for snapshot in snapshots.values():
        if snapshot.head is not None and not snapshot.head.admitted:
            return snapshot.head.need
    return next((int(s.waiting_need[0]) for s in snapshots.values() if len(s.waiting_need)), None)


def _rows(lane: LaneView) -> int:
    return len(lane.snapshot.columns.start)
