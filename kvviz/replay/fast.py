"""The compiled way: arrays for `replay.kernels`, and what they hold afterwards.

Importing this loads numba; `replay.replay` does so when a lane runs this way.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from kvviz.config import RunConfig
from kvviz.records import (
    ADMITTED,
    HOLE,
    REFUSALS,
    RESERVED,
    WAITING_SHOWN,
    Columns,
    Counters,
    Event,
    Snapshot,
    Verdict,
)
from kvviz.replay import kernels as k
from kvviz.replay.load import Load
from kvviz.replay.result import FIELDS, POINTS, SUMS, LaneResult, Watch

_EVENTS = 1 << 12  # served between two looks at the clock
_NEVER_ENDS = 1 << 60
_KINDS = ("arrive", "admit", "refuse", "drop", "drop", "move", "preempt", "finish")
_TEXTS = {k.DROP_FULL: "the queue is full", k.DROP_NEVER: "it can never fit"}
_VERDICTS = (*REFUSALS, ADMITTED)


class Arrays(NamedTuple):
    """The arguments of `kernels.serve`, in its order."""

    p: np.ndarray
    s: np.ndarray
    q: np.ndarray
    ends: np.ndarray
    link: np.ndarray
    tree: np.ndarray
    keys: np.ndarray
    size_of: np.ndarray
    low_of: np.ndarray
    log: np.ndarray
    sums: np.ndarray
    busy: np.ndarray
    samples: np.ndarray


class FastLane:
    """One lane under way. `replay.support.why_plain` has said that its settings can be.

    events: room for so many; none are kept by default. ids: keep which blocks a sequence has,
    which `snapshot` of a paged lane needs.
    """

    def __init__(
        self, load: Load, config: RunConfig, layout: str, *, events: int = 0, ids: bool = False
    ) -> None:
        self.load, self.config = load, config
        self.paged = layout == "paged"
        self.seconds = 0.0
        self.done = False
        self.arrays = _arrays(load, config, self.paged, events)
        self.arrays.p[k.IDS] = ids

    @property
    def step(self) -> int:
        """Steps done."""
        return int(self.arrays.s[k.STEP])

    def serve(self, until: int | None = None, watch: Watch | None = None) -> bool:
        """Go on to step `until`, or to the end. `watch` is told how many requests are through
        and says whether to go on. False: it said no."""
        goes_on = True
        k.serve(*self.arrays, 0, 0)  # compiled, or read from the cache, before the clock starts
        while not self.done and goes_on and (until is None or self.step < until):
            began = time.perf_counter()
            self.done = k.serve(*self.arrays, until or _NEVER_ENDS, _EVENTS)
            self.seconds += time.perf_counter() - began
            if watch:
                s = self.arrays.s
                goes_on = watch(int(s[k.N_FINISHED] + s[k.N_DROPPED]))
        return goes_on

    def result(self) -> LaneResult:
        a = self.arrays
        count = a.s.tolist()
        return LaneResult(
            "events",
            "",
            self.config.memory.slots,
            int(a.p[k.CAPACITY]),
            self.step,
            self.seconds,
            {
                "admitted": count[k.N_ADMITTED],
                "finished": count[k.N_FINISHED],
                "preempted": count[k.N_PREEMPTED],
                "dropped": count[k.N_DROPPED],
                "recomputed": count[k.N_RECOMPUTED],
                "cached": 0,
                "moved": count[k.N_MOVED],
                "passes": count[k.PASSES],
                "generated": count[k.GENERATED],
                "refused": count[k.REFUSALS : k.REFUSALS + len(REFUSALS)],
                "paged": self.paged,
            },
            a.q[:, k.FIRST].astype(np.int64),
            a.q[:, k.DONE].astype(np.int64),
            a.sums.copy(),
            a.busy.copy(),
            a.samples[: count[k.SAMPLES]].copy(),
        )

    def events(self) -> list[Event]:
        """All that were kept, oldest first."""
        kept = int(self.arrays.s[k.EVENTS])
        assert kept <= len(self.arrays.log), f"{kept:,} events, room for {len(self.arrays.log):,}"
        found = []
        for step, kind, request, verdict, need, free, largest, slots in self.arrays.log[
            :kept
        ].tolist():
            name = _VERDICTS[verdict] if verdict >= 0 else ""
            found.append(
                Event(
                    step, _KINDS[kind], request, name, need, free, largest, slots,
                    _TEXTS.get(kind, ""),
                )
            )  # fmt: skip
        return found

    def snapshot(self, slot_bytes: int) -> Snapshot:
        """The memory after the last step, as `engine.Engine.snapshot` gives it."""
        a, s = self.arrays, self.arrays.s
        assert a.p[k.IDS] or not self.paged, "a map of blocks needs ids=True"
        running = np.array(_walk(a.q, int(a.ends[k.RUN, 0]), k.A_NEXT), np.int64)
        waiting = _walk(a.q, int(a.ends[k.WAIT, 0]), k.A_NEXT, WAITING_SHOWN)
        q = a.q.astype(np.int64)[running] if len(running) else np.zeros((0, k.COLUMNS), np.int64)
        decodes = q[:, k.STATE] == k.DECODING
        used = np.where(decodes, s[k.STEP] - q[:, k.BASE], q[:, k.WRITTEN])
        needs = [self._need(i) for i in waiting]
        return Snapshot(
            self.step,
            self.seconds,
            self.config.memory.slots,
            self.config.paged.block_size if self.paged else 1,
            self.paged,
            slot_bytes,
            self._admissible(),
            self._columns(running, used),
            running,
            used,
            q[:, k.LIFE],
            q[:, k.HELD],
            q[:, k.PROMPT],
            q[:, k.SINCE],
            waiting_id=np.array(waiting, np.int64),
            waiting_need=np.array(needs, np.int64),
            head=self._head(waiting),
            counters=self._counters(len(running)),
        )

    def _admissible(self) -> int:
        a, s = self.arrays, self.arrays.s
        if not self.paged:
            return int(a.keys[s[k.HOLES] - 1] >> k._BITS) if s[k.HOLES] else 0
        held_back = int(a.p[k.WATERMARK]) if s[k.RUNNING] else 0
        return max(0, int(s[k.FREE]) - held_back)

    def _need(self, row: int) -> int:
        p, q = self.arrays.p, self.arrays.q
        wanted = max(int(q[row, k.ASK]), min(int(q[row, k.TOKENS]), int(p[k.CAP])))
        return -(-wanted // int(p[k.GRAIN])) * int(p[k.GRAIN])

    def _head(self, waiting: list[int]) -> Verdict | None:
        """Asked as the plain way does: of a head that memory has refused."""
        a = self.arrays
        if not waiting or a.q[waiting[0], k.REFUSED] < 0:
            return None
        scratch = a.s.copy()
        kind = k.judge(a.p, scratch, a.q, a.keys, waiting[0])
        return Verdict(_VERDICTS[kind], *scratch[k.V_NEED : k.V_LARGEST + 1].tolist())

    def _counters(self, running: int) -> Counters:
        c = self.result().counts
        s = self.arrays.s
        return Counters(
            arrived=int(s[k.CURSOR]),
            admitted=c["admitted"],
            finished=c["finished"],
            preempted=c["preempted"],
            dropped=c["dropped"],
            recomputed=c["recomputed"],
            generated=c["generated"],
            slots_moved=c["moved"],
            running=running,
            waiting=int(s[k.WAITS]),
            refused=dict(zip(REFUSALS, c["refused"], strict=True)),
            passes=c["passes"],
        )

    def _columns(self, running: np.ndarray, used: np.ndarray) -> Columns:
        a = self.arrays
        if not self.paged:
            return _regions(a, running, used)
        block, slots = self.config.paged.block_size, self.config.memory.slots
        count, null = slots // block, int(self.config.paged.null_block)
        start = np.arange(-(-slots // block), dtype=np.int64) * block
        owner = np.full(len(start), HOLE, np.int64)
        filled = np.zeros(len(start), np.int64)
        owner[:null] = owner[count:] = RESERVED
        for row, written in zip(running.tolist(), used.tolist(), strict=True):
            ids = _chain(a.link, int(a.q[row, k.START]), int(a.q[row, k.HELD]) // block)
            owner[ids] = row
            full, tail = divmod(written, block)
            filled[ids[:full]] = block
            if tail:
                filled[ids[full]] = tail
        size = np.diff(start, append=slots)
        return Columns(start, size, filled, owner, (owner != HOLE).astype(np.int64))


def _arrays(load: Load, config: RunConfig, paged: bool, events: int) -> Arrays:
    c, e, slots = config.contiguous, config.engine, config.memory.slots
    grain = config.paged.block_size if paged else 1
    blocks = slots // grain
    null = int(paged and config.paged.null_block)
    usable = (blocks - null) * grain
    ring = 1 << int(load.output.max() + 1).bit_length()
    p = np.zeros(k.SETTINGS, np.int64)
    p[k.KIND] = k.PAGED if paged else {"first": k.FIRST_FIT, "best": k.BEST_FIT}[c.fit]
    p[k.GRAIN], p[k.BUDGET], p[k.MOST] = grain, e.token_budget, e.max_running
    p[k.CHUNK], p[k.QUEUE], p[k.CAPACITY] = e.chunk or 1 << 30, e.queue_limit, usable
    p[k.WATERMARK] = int(config.paged.watermark * (blocks - null)) * grain if paged else 0
    p[k.GROWS] = config.paged.admission != "limit" if paged else c.reservation == "exact"
    chunked = paged and config.paged.admission == "chunk"
    p[k.CAP] = (e.chunk or e.token_budget) if chunked else 1 << 30
    p[k.RING] = ring - 1
    q = np.zeros((load.rows, k.COLUMNS), np.int32)
    q[:, k.PROMPT] = q[:, k.TOKENS] = load.prompt
    q[:, k.LIFE], q[:, k.ARRIVAL] = load.life, load.arrival
    q[:, k.ASK] = _asked(load, config, paged)
    for column in (k.REFUSED, k.FIRST, k.DONE):
        q[:, column] = -1
    s = np.zeros(k.SCALARS, np.int64)
    s[k.FREE], s[k.STRIDE], s[k.TOP] = usable, 1, null
    holes = 1 if paged else slots + 1
    tree = np.zeros(1, np.int32)
    size_of, low_of = np.zeros(holes, np.int32), np.full(holes, -1, np.int32)
    keys = np.zeros(1 if paged else e.max_running + 2, np.int64)
    if not paged:
        size_of[0], low_of[slots], s[k.HOLES] = slots, 0, 1
        keys[0] = slots << k._BITS
        if c.fit == "first":
            tree = np.zeros(2 << max(slots - 1, 1).bit_length(), np.int32)
            tree[[1 << level for level in range(len(tree).bit_length() - 1)]] = slots
    return Arrays(
        p,
        s,
        q,
        np.full((k.PHASES + grain + ring, 2), -1, np.int32),
        np.arange(1, blocks + 1, dtype=np.int32) if paged else np.zeros(1, np.int32),
        tree,
        keys,
        size_of,
        low_of,
        np.zeros((events, k.EVENT_FIELDS), np.int64),
        np.zeros(len(SUMS)),
        np.zeros(e.max_running + 1, np.int64),
        np.zeros((POINTS, len(FIELDS)), np.int64),
    )


def _asked(load: Load, config: RunConfig, paged: bool) -> np.ndarray | int:
    """Slots wanted at admission however many tokens are known; 0: as many as those."""
    most = load.context  # prompt + limit - 1
    if paged:
        return most if config.paged.admission == "limit" else 0
    rounded = 1 << np.ceil(np.log2(load.output)).astype(np.int64)
    limit = load.context - load.prompt + 1
    return {
        "oracle": load.life,
        "max": most,
        "pow2": load.prompt + np.minimum(rounded, np.maximum(limit, load.output)) - 1,
        "exact": 0,
    }[config.contiguous.reservation]


def _regions(a: Arrays, running: np.ndarray, used: np.ndarray) -> Columns:
    keys = a.keys[: int(a.s[k.HOLES])]
    holes = np.zeros((len(keys), 5), np.int64)
    holes[:, 0], holes[:, 1], holes[:, 3] = keys & ((1 << k._BITS) - 1), keys >> k._BITS, HOLE
    live = a.q[running].astype(np.int64)
    ones = np.ones(len(running), np.int64)
    rows = np.column_stack([live[:, k.START], live[:, k.HELD], used, running, ones])
    table = np.concatenate([rows, holes])
    table = table[np.argsort(table[:, 0])]
    return Columns(*(np.ascontiguousarray(column) for column in table.T))


def _walk(q: np.ndarray, first: int, following: int, most: int = 1 << 30) -> list[int]:
    found: list[int] = []
    while first >= 0 and len(found) < most:
        found.append(first)
        first = int(q[first, following])
    return found


def _chain(link: np.ndarray, first: int, count: int) -> np.ndarray:
    ids = np.empty(count, np.int64)
    for at in range(count):
        ids[at] = first
        first = int(link[first])
    return ids
