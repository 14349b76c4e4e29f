"""The one place where parts are joined. Torch is imported inside `real_parts` only."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kvviz.caches.budget import PoolBudget
from kvviz.caches.layout import Layout
from kvviz.caches.layouts import LANES, LAYOUTS, lane_config
from kvviz.config import RunConfig
from kvviz.engine.engine import Engine
from kvviz.engine.forward import DryForward, Forward
from kvviz.engine.lanes import Lanes
from kvviz.engine.recorder import Recorder
from kvviz.workloads.stream import RequestStream

if TYPE_CHECKING:
    from kvviz.model.serving import ServingModel

DRY_ELEMENT_BYTES = 4


class Backend(NamedTuple):
    """What all lanes of a process share: weights, prompts and the budget of pool bytes."""

    model: ServingModel
    prompts: Callable
    budget: PoolBudget
    device_name: str


def load_backend(model: str = "", budget: PoolBudget | None = None) -> Backend:
    """Load weights and prompts once. `model`: a folder or a known name. Raises CheckpointError."""
    from kvviz.model.known import folder_of
    from kvviz.model.prompts import prompts_for
    from kvviz.model.serving import load_serving

    loaded = load_serving(folder_of(model))
    prompts = prompts_for(loaded.tokenizer)
    return Backend(loaded, prompts, budget or PoolBudget.of_host(), device_name(loaded.device))


def build_lanes(
    config: RunConfig,
    backend: Backend | None = None,
    names: tuple[str, ...] = (),
    *,
    history: int = 16_384,
) -> Lanes:
    """The named lanes (else those of the config) on one clock; dry ones need no backend.

    Raises CapacityError when a pool does not fit; the pools taken so far are given back.
    """
    if backend is None and not config.dry:
        backend = load_backend(config.model)
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
        from kvviz.errors import ConfigError

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
