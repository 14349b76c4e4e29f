"""Decode steps as CUDA graphs: one launch instead of some hundred.

A step in which every sequence writes one token always has the same shape when it is padded to a
fixed number of sequences, so it is captured once for each of a few numbers, when the first such
step comes, and replayed from buffers that are filled before. Padding repeats the sequence with
the fewest tokens: it then writes the same numbers to the same slot, so nothing need be undone.

Attention that gathers has one more size, that of the copy: it is captured for powers of two.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import torch

from kvviz.model.attention import Attention, Flash, Inputs, Reads
from kvviz.model.rows import Rows

log = logging.getLogger(__name__)

# Sequences of a captured step. Beyond the last, launching is little beside computing.
BUCKETS = (1, 4, 16, 64, 256)
_FEWEST_KEYS = 256  # of a captured copy

Step = Callable[[], torch.Tensor]
Capture = Callable[[Step], Step]  # a step -> what does the same again, from the same buffers
Run = Callable[[Inputs], torch.Tensor]


def cuda_capture(step: Step) -> Step:
    """The step is run once before, on a side stream, for what allocates lazily."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # Other runs' threads allocate meanwhile, which must not fail this one
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        result = step()

    def replay() -> torch.Tensor:
        graph.replay()
        return result

    return replay


def bucket(sequences: int) -> int:
    """The captured number of sequences that holds so many; 0 where there is none."""
    return next((size for size in BUCKETS if size >= sequences), 0)


def keys_of(rows: Rows) -> int:
    """The captured size of the copy that these sequences, of a token each, read from."""
    keys = int((rows.positions + 1).sum())
    return max(_FEWEST_KEYS, 1 << (keys - 1).bit_length())


def decodes(rows: Rows) -> bool:
    """Does every sequence write one token, and draw one?"""
    count = len(rows.requests)
    return len(rows.last) == count and bool((np.diff(rows.requests) != 0).all())


def padded(rows: Rows, size: int) -> Rows:
    """`rows`, each a sequence, with the one of the fewest tokens repeated up to `size` rows.

    The copies stand beside it, so that regions stay in rising order."""
    shortest = int(np.argmin(rows.positions))
    repeats = np.ones(len(rows.positions), np.int64)
    repeats[shortest] += size - len(rows.positions)
    at = np.repeat(np.arange(len(rows.positions)), repeats)
    place = np.cumsum(repeats) - repeats
    return Rows(
        rows.tokens[at],
        # Names of their own: equal ones side by side would be one sequence of several rows
        np.arange(size),
        rows.positions[at],
        rows.lines[at],
        rows.slots[at],
        place[rows.last],
        rows.drawn,
    )


class _Captured:
    """One captured step: its buffers, and how to replay it."""

    def __init__(
        self, run: Run, attention: Flash, device: torch.device, size: int, keys: int, longest: int
    ) -> None:
        blocks = -(-longest // attention.block) if attention.block else 0
        self._attention, self._blocks, self._keys = attention, blocks, keys

        def zeros(count: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(count, dtype=dtype, device=device)

        reads = Reads(
            torch.arange(size + 1, dtype=torch.int32, device=device),
            zeros(size + 1, torch.int32),
            zeros(size, torch.int32),
            1,
            longest,
            zeros(size * blocks, torch.int32).view(size, blocks) if blocks else None,
            zeros(keys, torch.int64) if keys else None,
        )
        tokens, positions, slots = (zeros(size, torch.int64) for _ in range(3))
        last = torch.arange(size, device=device)
        self._inputs = Inputs(tokens, positions, slots, last, reads)
        self._run = run
        self._replay: Step | None = None

    def logits(self, rows: Rows, capture: Capture) -> torch.Tensor:
        """[sequences of the bucket, vocab]; `rows` are padded to it."""
        self._fill(rows)
        if self._replay is None:
            self._replay = capture(lambda: self._run(self._inputs))
        return self._replay()

    def _fill(self, rows: Rows) -> None:
        args = self._attention.arguments(rows, self._blocks, self._keys)
        into = self._inputs
        for buffer, column in (
            (into.tokens, rows.tokens),
            (into.positions, rows.positions),
            (into.slots, rows.slots),
            (into.reads.cu_seq_k, args.cu_seq_k),
            (into.reads.seqused_k, args.seqused_k),
            (into.reads.block_table, args.block_table),
            (into.reads.slots, args.slots),
        ):
            if buffer is not None:
                buffer.copy_(torch.from_numpy(np.ascontiguousarray(column)))


class DecodeGraphs:
    """Captured steps by size. `state`: what the page says of them."""

    def __init__(
        self, run: Run, attention: Flash, device: torch.device, longest: int, capture: Capture
    ) -> None:
        self.state = "CUDA graphs for decode steps"
        self._run, self._attention, self._device = run, attention, device
        self._longest = longest
        self._capture: Capture | None = capture
        self._captured: dict[tuple[int, int], _Captured] = {}

    def logits(self, rows: Rows) -> torch.Tensor | None:
        """Of an ordered batch; None when it is no decode step of a captured size, or capturing
        failed (and then never again)."""
        size = bucket(len(rows.requests))
        if self._capture is None or not size or not decodes(rows):
            return None
        full = padded(rows, size)
        keys = keys_of(full) if self._attention.packs else 0
        if (size, keys) not in self._captured:
            self._captured[size, keys] = _Captured(
                self._run, self._attention, self._device, size, keys, self._longest
            )
        try:
            found = self._captured[size, keys].logits(full, self._capture)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            log.warning("no CUDA graph of %d sequences", size, exc_info=True)
            self.state = f"no CUDA graphs: {str(error).splitlines()[0]}"
            self._capture = None
            self._captured.clear()
            return None
        return found[torch.from_numpy(full.last).to(self._device)]


def graphs_over(
    run: Run, attention: Attention, device: torch.device, longest: int, capture: Capture
) -> DecodeGraphs | None:
    """None where the attention goes sequence by sequence: how many there are, the host decides."""
    if not isinstance(attention, Flash):
        return None
    return DecodeGraphs(run, attention, device, longest, capture)
