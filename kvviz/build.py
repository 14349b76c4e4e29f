"""The one place where parts are joined. Torch is imported inside `real_parts` only."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kvviz.caches.budget import PoolBudget
from kvviz.caches.layout import Layout
from kvviz.caches.layouts import LANES, LAYOUTS, lane_config
from kvviz.config import MOST_SLOTS, RunConfig
from kvviz.engine.engine import Engine
from kvviz.engine.forward import DryForward, Forward
from kvviz.engine.lanes import Lanes
from kvviz.engine.recorder import Recorder
from kvviz.errors import CapacityError, ConfigError
from kvviz.records import DeviceMemory
from kvviz.workloads.stream import RequestStream

if TYPE_CHECKING:
    from kvviz.model.serving import ServingModel

log = logging.getLogger(__name__)

DRY_ELEMENT_BYTES = 4
DEVICE_SHARE = 0.9  # of a GPU's free memory; a step's own tensors need the rest
_SHRINK = 0.8
_SHRINKS = 8  # times that, to a sixth of what was asked for


class Backend(NamedTuple):
    """What all lanes of a process share: weights, prompts and the budget of pool bytes."""

    model: ServingModel
    prompts: Callable
    budget: PoolBudget
    device_name: str


def load_backend(model: str = "", budget: PoolBudget | None = None) -> Backend:
    """Load weights and prompts once. `model`: a folder or a known name. Raises CheckpointError."""
    from kvviz.model.device import free_bytes
    from kvviz.model.known import folder_of
    from kvviz.model.prompts import prompts_for
    from kvviz.model.serving import load_serving

    loaded = load_serving(folder_of(model))
    prompts = prompts_for(loaded.tokenizer)
    budget = budget or PoolBudget.of_host()
    if loaded.device.type == "cuda":
        budget.settle(int(free_bytes(loaded.device) * DEVICE_SHARE))
    return Backend(loaded, prompts, budget, device_name(loaded.device))


def build_lanes(
    config: RunConfig,
    backend: Backend | None = None,
    names: tuple[str, ...] = (),
    *,
    history: int = 16_384,
) -> Lanes:
    """The named lanes (else those of the config) on one clock; dry ones need no backend.

    With memory.share the pools are as large as that share of the free memory, or smaller where it
    does not come in pieces that large; the lanes' own config then has the slots, and no share.
    Raises CapacityError when a pool does not fit; the pools taken so far are given back.
    """
    if backend is None and not config.dry:
        backend = load_backend(config.model)
    if not config.memory.share:
        return _build(config, backend, names, history)
    sized = _with_slots(config, slots_of_share(config, backend, len(names or config.lane_names)))
    for _ in range(_SHRINKS):
        try:
            return _build(sized, backend, names, history)
        except CapacityError as error:
            fewer = int(sized.memory.slots * _SHRINK)
            if fewer < config.memory.context:
                raise
            log.warning("pools shrink to %d slots each: %s", fewer, error)
            sized = sized.replace({"memory.slots": fewer})
    return _build(sized, backend, names, history)


def slots_of_share(config: RunConfig, backend: Backend | None, lanes: int) -> int:
    """Slots of each lane's pool by memory.share, in whole blocks. Raises ConfigError when dry."""
    if backend is None:
        raise ConfigError(
            "memory.share is a share of a device's memory, and a dry run has no device. "
            "Set memory.slots instead."
        )
    from kvviz.model.device import free_bytes, give_back_unused

    give_back_unused(backend.model.device)
    room = int(config.memory.share * free_bytes(backend.model.device))
    slots = min(room // lanes // _slot_bytes(config, backend), MOST_SLOTS)
    return slots // config.paged.block_size * config.paged.block_size


def device_memory(backend: Backend) -> DeviceMemory | None:
    """What the device says of its memory; None on the CPU."""
    from kvviz.model.device import device_memory

    return device_memory(backend.model.device)


def record_memory(backend: Backend) -> None:
    """Have torch remember allocations, for `memory_snapshot`. Raises ConfigError without a GPU."""
    from kvviz.model.device import start_recording

    start_recording(backend.model.device)


def memory_snapshot(backend: Backend) -> bytes:
    """For pytorch.org/memory_viz. Raises ConfigError without a GPU."""
    from kvviz.model.device import memory_snapshot

    return memory_snapshot(backend.model.device)


def _with_slots(config: RunConfig, slots: int) -> RunConfig:
    if slots < config.memory.context:
        raise CapacityError(
            f"memory.share {config.memory.share:g} gives each lane {slots:,} slots, fewer than the "
            f"context of {config.memory.context:,}. Raise the share, lower memory.context, or "
            "serve fewer lanes."
        )
    return config.replace({"memory.slots": slots, "memory.share": 0.0})


def _build(
    config: RunConfig, backend: Backend | None, names: tuple[str, ...], history: int
) -> Lanes:
    slot_bytes = _slot_bytes(config, backend)
    engines: dict[str, Engine] = {}
    try:
        for name in names or config.lane_names:
            mine = lane_config(name, config)
            layout = LAYOUTS[LANES[name].layout](mine, slot_bytes)
            forward = _forward(mine, layout, backend)
            engines[name] = Engine(name, layout, forward, mine, slot_bytes, Recorder(history))
    except BaseException:
        for engine in engines.values():
            engine.close()
        raise
    stream = RequestStream(config.mix, config.memory.context, config.seed)
    return Lanes(engines, stream, config)


def device_name(device: object) -> str:
    """`cuda:0 NVIDIA H200` or `CPU`, for the page and the JSON."""
    import torch

    if getattr(device, "type", "cpu") == "cuda":
        return f"cuda:0 {torch.cuda.get_device_name(0)}"
    return "CPU"


def _slot_bytes(config: RunConfig, backend: Backend | None) -> int:
    """What a slot costs: in the backend's store, or in the shipped model's when dry."""
    if config.dry:
        from kvviz.model.families import read_shape
        from kvviz.model.known import folder_of

        return read_shape(folder_of(config.model)).slot_bytes(DRY_ELEMENT_BYTES)
    from kvviz.caches.store import element_type

    assert backend is not None
    return backend.model.shape.slot_bytes(element_type(backend.model.device).itemsize)


def _forward(config: RunConfig, layout: Layout, backend: Backend | None) -> Forward:
    if config.dry:
        return DryForward()
    from kvviz.caches.virtual_store import store_for
    from kvviz.model.forward import ModelForward

    assert backend is not None
    model = backend.model
    if config.memory.context > model.shape.max_position_embeddings:
        raise ConfigError(
            f"memory.context {config.memory.context} is longer than the model's "
            f"{model.shape.max_position_embeddings} positions. Lower memory.context."
        )
    store = store_for(
        layout,
        model.shape,
        model.device,
        budget=backend.budget,
        poison=config.engine.check_every > 0,
    )
    return ModelForward(
        model,
        store,
        layout,
        prompts=backend.prompts,
        temperature=config.engine.temperature,
        seed=config.seed,
        bans_end=config.engine.ends == "mix",
    )
