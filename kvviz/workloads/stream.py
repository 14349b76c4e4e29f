"""One stream of requests for all lanes, drawn as it is needed.

Request k takes row k of a seeded table of uniform numbers, so that a seed and a config give the
same stream on any machine, and a mix that changes half-way changes what comes after and nothing
else. Time is in steps.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from kvviz.config import Mix
from kvviz.records import Request
from kvviz.workloads.lengths import DISTRIBUTIONS, FittedMix, load_mix
from kvviz.workloads.recorded import FILE, RecordedMix, RecordedRow, recorded

ON_DEMAND = -1
_ROWS = 256
_GAP, _PROMPT, _OUTPUT, _LONG, _TEXT, _SHARES, _PREFIX, _URGENT = range(8)
_ADDED_OUTPUT = 32  # tokens that a request added by hand generates
_FIRST = 5  # the first columns are drawn by themselves, the others by a generator of their own


Row = FittedMix | RecordedRow | None


def mix_named(name: str) -> FittedMix | RecordedMix:
    """A fitted mix, or the requests of a file that was given. Raises ConfigError."""
    return recorded(name) if name.startswith(FILE) else load_mix(name)


def source_of(name: str) -> str:
    """Where the requests of this trace come from. A file need not be here: a recording of a run
    that served it is opened anywhere."""
    return "requests of a file" if name.startswith(FILE) else load_mix(name).about


@dataclass(frozen=True)
class Scaling:
    """What fitting the mix to the context did, to how many of the `of` requests drawn so far.

    `divide` is that of the present mix; `divided` counts requests with a length divided (under
    any mix), `raised` those with a length that would have been under one token, `clipped` those
    cut to the context.
    """

    divide: int
    clipped: int
    of: int
    divided: int = 0
    raised: int = 0


class _Tally:
    """Counts requests by id, so that those drawn anew are not counted twice."""

    def __init__(self) -> None:
        self._settled = 0
        self._open: list[int] = []  # ids, ascending

    @property
    def count(self) -> int:
        return self._settled + len(self._open)

    def add(self, id: int) -> None:
        if not self._open or self._open[-1] != id:
            self._open.append(id)

    def undo(self, begin: int) -> None:
        """Forget ids from `begin` on."""
        del self._open[bisect_left(self._open, begin) :]

    def settle(self, before: int) -> None:
        """Ids below this are never undone."""
        done = bisect_left(self._open, before)
        self._settled += done
        del self._open[:done]


class RequestStream:
    """Requests in order of arrival. Kept from the oldest that some lane has not taken yet."""

    def __init__(self, mix: Mix, context: int, seed: int) -> None:
        self._context = context
        self._seed = seed
        self._requests: list[Request] = []
        self._first = 0
        self._clock = 0.0
        self._block = -1
        self._table = np.empty((0, 8))
        self._hash = hashlib.sha256()
        self._hashed = 0
        self._clipped, self._divided, self._raised = self._tallies = _Tally(), _Tally(), _Tally()
        self.reconfigure(mix)

    def reconfigure(self, mix: Mix) -> None:
        """The next request that is drawn follows this mix. Raises ConfigError for a trace that
        is not there."""
        self._fitted = mix_named(mix.trace) if mix.trace else None
        self.mix = mix
        self._divide = self._divisor(self._fitted)

    @property
    def drawn(self) -> int:
        return self._first + len(self._requests)

    @property
    def hash(self) -> str:
        """Of every request taken so far."""
        return self._hash.hexdigest()[:16]

    @property
    def scaling(self) -> Scaling:
        counts = (self._clipped.count, self.drawn, self._divided.count, self._raised.count)
        return Scaling(self._divide, *counts)

    def take(self, cursor: int, step: int, outstanding: int) -> list[Request]:
        """Requests from index `cursor` on that a lane receives at this step.

        `outstanding` (waiting or running in that lane) paces a closed loop.
        """
        taken: list[Request] = []
        while True:
            request = self._get(cursor + len(taken))
            if request.arrival > step or not self._due(request, step, outstanding + len(taken)):
                break
            taken.append(request)
            if request.id == self._hashed:
                self._hash.update(repr(request).encode())
                self._hashed += 1
        return taken

    def forget(self, before: int) -> None:
        """Every lane has taken the requests below this index."""
        if before - self._first >= _ROWS:
            del self._requests[: before - self._first]
            self._first = before
            for tally in self._tallies:
                tally.settle(before)

    def redraw(self, cursor: int, step: int) -> None:
        """Drop what no lane has taken yet (index `cursor` on); it is drawn under the new mix,
        with arrivals counted from `step`."""
        del self._requests[cursor - self._first :]
        for tally in self._tallies:
            tally.undo(cursor)
        self._clock = float(step)

    def insert(self, cursor: int, step: int, slots: int) -> Request:
        """A request that holds `slots` at its end (cut to the context) arrives at `step`, as
        number `cursor`; what comes after is drawn anew."""
        self.redraw(cursor, step)
        life = max(1, min(slots, self._context))
        output = min(_ADDED_OUTPUT, life)
        prompt = life - output + 1
        u = self._uniform(cursor)
        request = Request(
            cursor, step, prompt, output, self._context - prompt + 1, int(u[_TEXT] * 2**31)
        )
        self._requests.append(request)
        return request

    def _due(self, request: Request, step: int, outstanding: int) -> bool:
        if request.arrival == ON_DEMAND:
            return outstanding < self.mix.concurrency
        return request.arrival <= step

    def _get(self, index: int) -> Request:
        at = index - self._first
        while at >= len(self._requests):
            self._draw()
        return self._requests[at]

    def _draw(self) -> None:
        index = self.drawn
        u = self._uniform(index)
        row = self._fitted.row(index) if self._fitted else None
        prompt, output = self._lengths(row, u)
        mix = self.mix
        request = Request(
            index,
            self._arrival(index, row, u[_GAP]),
            prompt,
            output,
            self._context - prompt + 1,
            int(u[_TEXT] * 2**31),
            self._shared(row, u, prompt),
            mix.samples,
            int(u[_URGENT] < mix.urgent_share),
        )
        self._requests.append(request)

    def _shared(self, row: Row, u: np.ndarray, prompt: int) -> tuple[tuple[int, int], ...]:
        """The hashed pieces of a recorded prompt; else the system prompt that the request begins
        with, and its own part has a token at least."""
        if row and self.mix.prompts == "trace" and (ids := row.shared(prompt, self._divide)):
            return ids
        if u[_SHARES] >= self.mix.prefix_share or prompt == 1:
            return ()
        key = int(u[_PREFIX] * self.mix.prefixes)
        return ((key, min(self.mix.prefix_tokens, prompt - 1)),)

    def _uniform(self, index: int) -> np.ndarray:
        block, row = divmod(index, _ROWS)
        if block != self._block:
            self._table = np.hstack(
                [
                    np.random.default_rng([self._seed, block]).random((_ROWS, _FIRST)),
                    np.random.default_rng([self._seed, block, 1]).random((_ROWS, 8 - _FIRST)),
                ]
            )
            np.clip(self._table, 1e-9, 1 - 1e-9, out=self._table)
            self._block = block
        return self._table[row]

    def _lengths(self, row: Row, u: np.ndarray) -> tuple[int, int]:
        """Prompt and output, cut so that prompt + output - 1 fits in the context."""
        mix, u_output = self.mix, u[_OUTPUT]
        if row and mix.prompts == "trace" and mix.outputs == "trace":
            u_output = row.correlate(u[_PROMPT], u_output)
        if u[_LONG] < mix.long_share:
            prompt = float(mix.long_prompt)
        else:
            prompt = self._length(mix.prompts, row, u[_PROMPT], mix.prompt_mean, "prompt")
        output = self._length(mix.outputs, row, u_output, mix.output_mean, "output")
        if min(round(prompt), round(output)) < 1:
            self._raised.add(self.drawn)
        prompt, output = max(1, round(prompt)), max(1, round(output))
        if prompt + output - 1 > self._context:
            self._clipped.add(self.drawn)
            output = min(output, max(1, self._context // 2))
            prompt = min(prompt, self._context - output + 1)
        return prompt, output

    def _length(self, kind: str, row: Row, u: float, mean: float, side: str) -> float:
        if kind == "trace":
            if self._divide > 1:
                self._divided.add(self.drawn)
            return getattr(row, side)(u) / self._divide
        return DISTRIBUTIONS[kind](u, mean, self.mix.spread)

    def _arrival(self, index: int, row: Row, u: float) -> int:
        mix = self.mix
        if mix.arrivals == "closed":
            return ON_DEMAND
        if mix.arrivals == "steady":
            gap = 1 / mix.rate
        elif mix.arrivals == "poisson":
            gap = -math.log(u) / mix.rate
        elif mix.arrivals == "trace":
            assert row is not None, "a config says which trace"
            gap = row.gap(1 - u) / mix.rate
        else:  # bursts: the first of each burst waits for the gap of all of it
            gap = 0.0 if index % mix.burst else -math.log(u) * mix.burst / mix.rate
        self._clock += gap
        return int(self._clock)

    def _divisor(self, fitted: FittedMix | RecordedMix | None) -> int:
        if fitted is None:
            return 1
        return self.mix.divide or fitted.divisor(self._context)
