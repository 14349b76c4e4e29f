"""Decode steps on a GPU beside the two floors that no step can be faster than.

    memory   bytes of the weights and of the K and V that the step reads, over the bandwidth of a
             copy on this very card
    launch   kernels of a step, each as long as an empty one takes in the same way of launching
             (from a CUDA graph where the lane has one)

The larger of the two counts. Without a GPU there is nothing to measure, and it says so.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from kvviz.bench.result import LeftOut, Measured
from kvviz.caches.budget import PoolBudget
from kvviz.caches.layout import Layout
from kvviz.caches.layouts import LAYOUTS
from kvviz.caches.store import KVStore
from kvviz.config import RunConfig
from kvviz.engine.engine import Engine
from kvviz.engine.recorder import Recorder
from kvviz.model.device import free_bytes
from kvviz.model.forward import ModelForward
from kvviz.model.graphs import cuda_capture
from kvviz.model.known import KNOWN, folder_of
from kvviz.model.prompts import prompts_for
from kvviz.model.serving import ServingModel, load_serving
from kvviz.records import Request

STEP_OVER_FLOOR = 1.5
PAGED_OVER_CONTIGUOUS = 1.1
BATCHES = (1, 16, 64)
PROMPT, NEW_TOKENS = 384, 64
_COPY_BYTES = 1 << 30
_LAUNCHES = 2000


class Lane(NamedTuple):
    """A layout with its block size (of no account to regions)."""

    layout: str
    block: int

    @property
    def title(self) -> str:
        return self.layout if self.layout != "paged" else f"paged by {self.block}"


LANES = (Lane("contiguous", 256), Lane("paged", 256), Lane("paged", 16))


class Card(NamedTuple):
    """Measured: bytes a second read and written by a copy; seconds of an empty kernel that the
    host launches, and of one in a graph."""

    bandwidth: float
    launch: float
    graph_launch: float


class Step(NamedTuple):
    """A decode step: seconds, kernels, bytes of weights and of K and V that it must read, how the
    lane reads its cache."""

    seconds: float
    kernels: int
    read_bytes: int
    way: str

    def floors(self, card: Card) -> tuple[float, float]:
        """(memory, launch) in seconds."""
        launch = card.graph_launch if "; CUDA graphs" in self.way else card.launch
        return self.read_bytes / card.bandwidth, self.kernels * launch


def bench_cuda() -> list[Measured]:
    """Raises LeftOut where torch sees no GPU."""
    if not torch.cuda.is_available():
        raise LeftOut("torch sees no GPU here")
    device = torch.device("cuda")
    card = measure_card(device)
    print(f"  {torch.cuda.get_device_name(device)}")
    found = [
        Measured("copy bandwidth, read and written", card.bandwidth / 1e9, "GB/s"),
        Measured("an empty kernel", card.launch * 1e6, "us"),
        Measured("an empty kernel in a graph", card.graph_launch * 1e6, "us"),
    ]
    for name in ("", "smollm2"):
        if missing := KNOWN[name].missing():
            print(f"  left out: {name} is not here ({missing})")
            continue
        model = load_serving(folder_of(name), device)
        for batch in BATCHES:
            steps = {lane: measure_step(model, lane, batch, kernels_of) for lane in LANES}
            found += figures(name or "shipped model", batch, steps, card)
    return found


def figures(title: str, batch: int, steps: dict[Lane, Step], card: Card) -> Iterator[Measured]:
    """Each lane's step beside its floors, and paged beside contiguous."""
    for lane, step in steps.items():
        memory, launch = step.floors(card)
        name = f"{title}, batch {batch}, {lane.title}"
        print(f"  {name}: {step.way}")
        yield Measured(f"{name}: ms a decode step", step.seconds * 1e3, "ms")
        yield Measured(f"{name}: memory floor", memory * 1e3, "ms")
        yield Measured(f"{name}: launch floor, {step.kernels} kernels", launch * 1e3, "ms")
        yield Measured(
            f"{name}: step over the larger floor",
            step.seconds / max(memory, launch),
            "x",
            at_most=STEP_OVER_FLOOR,
        )
    plain = steps[LANES[0]].seconds
    for lane in LANES[1:]:
        yield Measured(
            f"{title}, batch {batch}: {lane.title} over contiguous",
            steps[lane].seconds / plain,
            "x",
            at_most=PAGED_OVER_CONTIGUOUS,
        )


def measure_step(
    model: ServingModel, lane: Lane, batch: int, kernels: Callable[[Callable[[], object]], int]
) -> Step:
    """Serve `batch` equal requests and look at the steps in which all of them decode."""
    config = RunConfig().replace(
        {
            "memory.slots": -(-batch * (PROMPT + NEW_TOKENS) // 256) * 256 + 256 * batch,
            "memory.context": PROMPT + NEW_TOKENS,
            "paged.block_size": lane.block,
            "engine.token_budget": batch * PROMPT,
            "engine.max_running": batch,
            "engine.temperature": 0,
            "engine.check_every": 0,
        }
    )
    layout = LAYOUTS[lane.layout](config)
    budget = PoolBudget(int(free_bytes(model.device) * 0.9))
    store = KVStore(model.shape, config.memory.slots, model.device, budget=budget, poison=False)
    prompts = prompts_for(model.tokenizer)
    forward = ModelForward(
        model, store, layout, prompts=prompts, temperature=0, seed=0, bans_end=True
    )
    engine = Engine(lane.layout, layout, forward, config, store.slot_bytes, Recorder(256))
    try:
        engine.submit(
            [Request(i, 0, PROMPT, NEW_TOKENS, NEW_TOKENS, text=17 * i) for i in range(batch)]
        )
        times: list[float] = []
        counted, read = 0, 0
        while not engine.idle:
            before = engine.generated
            began = time.perf_counter()
            if len(times) == NEW_TOKENS // 2 and not counted:
                counted = kernels(engine.step)
                read = weight_bytes(model) + _live_slots(layout, batch) * store.slot_bytes
                continue
            engine.step()
            if engine.generated - before == engine.outstanding == batch:
                times.append(time.perf_counter() - began)
        # The first writes the prompts, the next ones capture graphs and fill caches
        return Step(statistics.median(times[4:]), counted, read, forward.attention)
    finally:
        engine.close()


def weight_bytes(model: ServingModel) -> int:
    """What a step must read of the weights: all but the embedding, of which it needs some rows,
    unless that is the output matrix too."""
    tensors = [t for layer in model.layers for t in vars(layer).values() if t is not None]
    return sum(t.nbytes for t in (*tensors, model.norm, model.unembed))


def _live_slots(layout: Layout, batch: int) -> int:
    return sum(layout.written(i) for i in range(batch) if layout.holds(i))


def kernels_of(step: Callable[[], object]) -> int:
    """Kernels that the GPU runs in one call, copies left out."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    return sum(
        event.device_type.name == "CUDA" and "Mem" not in event.name for event in seen.events()
    )


def measure_card(device: torch.device) -> Card:
    source = torch.empty(_COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    one = torch.zeros(1, device=device)

    def empty() -> torch.Tensor:
        for _ in range(_LAUNCHES):
            one.add_(1)
        return one

    copy = _seconds(lambda: target.copy_(source))
    replay = cuda_capture(empty)
    return Card(2 * _COPY_BYTES / copy, _seconds(empty) / _LAUNCHES, _seconds(replay) / _LAUNCHES)


def _seconds(act: Callable[[], object], rounds: int = 10) -> float:
    """Median time on the device, after one call that is not counted."""
    act()
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        act()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return float(np.median(times))
