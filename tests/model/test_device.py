"""A GPU's memory, without one: torch's answers are put in its place."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
import torch

from kvviz import build
from kvviz.build import Backend, build_lanes
from kvviz.caches.budget import PoolBudget, host_memory_bytes
from kvviz.caches.store import KVStore
from kvviz.errors import CapacityError, ConfigError, KvvizError
from kvviz.live.hub import Hub
from kvviz.live.runner import LiveRunner
from kvviz.model import device
from kvviz.records import DeviceMemory
from kvviz.report import run_report, table
from kvviz.ui.frames import head
from kvviz.views.theme import THEMES
from tests.conftest import TINY
from tests.helpers import lanes, small
from tests.live.support import publish, until

CPU, GPU = torch.device("cpu"), torch.device("cuda")
GiB = 1 << 30
OUT = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 139.80 GiB."


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """torch.cuda of a GPU of 80 GiB, 3 in tensors, 5 reserved, 70 free; what it was asked for."""
    asked: list[str] = []
    fake = {
        "mem_get_info": lambda *_: (70 * GiB, 80 * GiB),
        "memory_allocated": lambda *_: 3 * GiB,
        "memory_reserved": lambda *_: 5 * GiB,
        "empty_cache": lambda: asked.append("empty_cache"),
    }
    for name, answer in fake.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    recorder = torch.cuda.memory
    monkeypatch.setattr(
        recorder, "_record_memory_history", lambda **words: asked.append(f"record {words}")
    )
    monkeypatch.setattr(recorder, "_snapshot", lambda _device: {"segments": [], "own": 7})
    return asked


def test_numbers_of_a_device(gpu: list[str]) -> None:
    """The page mixes up what torch holds and what the device has left."""
    memory = device.device_memory(GPU)
    assert memory == DeviceMemory(3 * GiB, 5 * GiB, 70 * GiB, 80 * GiB)
    assert device.free_bytes(GPU) == 72 * GiB
    device.give_back_unused(CPU)
    assert gpu == []
    device.give_back_unused(GPU)
    assert gpu == ["empty_cache"]


def test_numbers_without_a_device() -> None:
    assert device.device_memory(CPU) is None
    assert 0 < device.free_bytes(CPU) <= host_memory_bytes() * 1.1


def test_out_of_memory_is_told_with_both_sizes(gpu: list[str]) -> None:
    """Torch's page of advice reaches the person, or one of the two sizes doesn't."""
    with pytest.raises(CapacityError) as told, device.told(GPU, "a step", "Choose fewer slots."):
        raise torch.OutOfMemoryError(OUT)
    assert str(told.value) == (
        "a step asked for 2.50 GiB, and 73,728 MiB are free on the device. Choose fewer slots."
    )
    with pytest.raises(RuntimeError, match="another"), device.told(GPU, "a step", ""):
        raise RuntimeError("another fault")


def test_a_pool_without_room_is_refused_with_both_sizes(
    gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_words: object, **_named: object) -> None:
        raise torch.OutOfMemoryError(OUT)

    monkeypatch.setattr(torch, "full", full)
    budget = PoolBudget(1 << 40)
    slots = (1 << 30) // TINY.slot_bytes(2)
    with pytest.raises(CapacityError, match=r"= 1,024 MiB: 71,680 MiB are free"):
        KVStore(TINY, slots, GPU, budget=budget, poison=True)
    assert budget.used_bytes == 0


def test_memory_that_runs_out_in_a_step_leaves_the_page(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread ends, or the person reads a stack trace; the last picture is gone."""
    runner = LiveRunner(
        small({"engine.check_every": 0}), lambda config: build_lanes(config, backend), speed=50.0
    )
    try:
        until(lambda: runner.latest().step > 3)

        def fails(*_words: object) -> None:
            raise torch.OutOfMemoryError(OUT)

        runner.ask(
            lambda built, *_: setattr(built.engines["paged"].forward._decoder, "logits", fails)
        ).result(15)
        until(lambda: runner.latest().stopped)
        shown = runner.latest()
        (said,) = (fault.text for fault in shown.stopped.values())
        assert set(shown.stopped) == {"paged"}
        assert "asked for 2.50 GiB, and" in said and "MiB are free" in said
        assert "beside a pool of" in said and "engine.token_budget" in said
        assert set(shown.lanes) == {"contiguous", "paged"} and runner.alive
        until(lambda: runner.latest().step > shown.step + 2)  # the other lane goes on
        runner.reset()
        until(lambda: not runner.latest().stopped)
    finally:
        runner.close()
        runner.join(15)
    assert backend.budget.used_bytes == 0


@pytest.fixture
def room(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> int:
    """A device with room for 4,003 slots in all."""
    free = 4003 * TINY.slot_bytes(4)
    monkeypatch.setattr(device, "free_bytes", lambda _device: free)
    return free


def test_a_share_of_the_device(backend: Backend, room: int) -> None:
    """Pools are sized for one lane, or the run can't be made again from its own settings."""
    assert backend.model.shape == TINY
    with lanes(small({"memory.share": 0.5}), backend) as built:
        assert built.config.memory.slots == 1000 // 16 * 16
        assert built.config.memory.share == 0
        assert {e.layout.capacity for e in built.engines.values()} == {built.config.memory.slots}
        assert backend.budget.used_bytes <= room // 2


def test_pools_shrink_to_what_there_is(
    backend: Backend, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The share is free in all, but not in pieces so large: the run does not start."""
    allocate = KVStore._allocate

    def tight(self: KVStore, on: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        if self.slots > 700:
            raise CapacityError("no piece so large")
        return allocate(self, on)

    monkeypatch.setattr(KVStore, "_allocate", tight)
    with lanes(small({"memory.share": 0.5}), backend) as built:
        assert built.config.memory.slots == int(int(992 * 0.8) * 0.8)
    assert backend.budget.used_bytes == 0
    with pytest.raises(CapacityError, match="no piece so large"):
        build_lanes(small({"memory.slots": 992}), backend)  # asked for by number: not shrunk


def test_a_share_that_is_too_small(backend: Backend, room: int) -> None:
    with pytest.raises(CapacityError, match=r"0\.05 gives each lane 96 slots, fewer than .* 128"):
        build_lanes(small({"memory.share": 0.05}), backend)
    with pytest.raises(ConfigError, match="a dry run has no device. Set memory.slots"):
        build_lanes(small({"memory.share": 0.5, "dry": True}))


def test_the_budget_is_the_devices(
    backend: Backend, gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pools of a GPU are held to half of the host's memory; or a limit that was given is lost."""
    on_gpu = replace(backend.model, device=GPU)
    monkeypatch.setattr("kvviz.model.serving.load_serving", lambda _folder: on_gpu)
    monkeypatch.setattr(build, "device_name", lambda _device: "cuda:0 a GPU")
    budget = PoolBudget.of_host()
    assert build.load_backend("", budget).budget is budget
    assert budget.limit_bytes == int(72 * GiB * 0.9)
    given = PoolBudget(100)
    build.load_backend("", given)
    assert given.limit_bytes == 100


def test_memory_snapshot(gpu: list[str]) -> None:
    device.start_recording(GPU)
    assert gpu == ["record {'max_entries': 100000, 'stacks': 'python'}"]
    assert pickle.loads(device.memory_snapshot(GPU)) == {"segments": [], "own": 7}
    for act in (device.start_recording, device.memory_snapshot):
        with pytest.raises(ConfigError, match="runs on the CPU. Leave out --memory-snapshot"):
            act(CPU)


def test_the_hub_records_from_the_start(
    backend: Backend, gpu: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot on the page has no past."""
    hub = Hub(budget=PoolBudget(1 << 30))
    with pytest.raises(KvvizError, match="No model is loaded yet"):
        hub.memory_snapshot()
    on_gpu = backend._replace(model=replace(backend.model, device=GPU))
    monkeypatch.setattr("kvviz.live.hub.load_backend", lambda *_: on_gpu)
    hub.backend()
    hub.backend()
    assert len(gpu) == 1 and gpu[0].startswith("record")
    assert pickle.loads(hub.memory_snapshot())["own"] == 7
    assert hub._memory() == device.device_memory(GPU)


def test_the_report_names_ways_and_memory(backend: Backend) -> None:
    """Ours and the device's numbers don't stand side by side, or a CPU run invents some."""
    with lanes(small(), backend) as built:
        for _ in range(3):
            built.step()
        plain = run_report(built, "CPU")
        told = run_report(built, "cuda:0", DeviceMemory(3 * GiB, 5 * GiB, 70 * GiB, 80 * GiB))
    assert "device_memory" not in plain
    assert plain["lanes"]["paged"]["attention"] == "CPU kernels, in place"
    assert told["device_memory"] == {
        "pool_bytes": 2 * 512 * TINY.slot_bytes(4),
        "allocated_bytes": 3 * GiB,
        "reserved_bytes": 5 * GiB,
        "free_bytes": 70 * GiB,
        "total_bytes": 80 * GiB,
    }
    assert "allocated 3,072, reserved 5,120, free 71,680 of 81,920" in table(told)
    assert "attention, paged: CPU kernels, in place" in table(told)


def test_the_page_names_ways_and_memory() -> None:
    """That a lane gathers stays unsaid; the link to a snapshot leads nowhere on the CPU."""
    shown = publish(small({"dry": True}), 5)
    theme = THEMES["light"]
    assert not head(shown, theme)["snapshots_memory"]
    ways = {"contiguous": "varlen_attn, in place", "paged": "gathered, then varlen_attn: why"}
    shown = replace(
        shown,
        device="cuda:0 a GPU",
        memory=DeviceMemory(3 * GiB, 5 * GiB, 70 * GiB, 80 * GiB),
        lanes={name: replace(lane, attention=ways[name]) for name, lane in shown.lanes.items()},
    )
    frame = head(shown, theme)
    assert frame["snapshots_memory"]
    chips = {chip["label"]: chip for chip in frame["status"]}
    assert chips["cuda:0 a GPU"]["help"] == (
        "where the pools are; contiguous: varlen_attn, in place; "
        "paged: gathered, then varlen_attn: why"
    )
    assert "3.0 GiB allocated, 5.0 GiB reserved, 70.0 GiB free" in chips
    assert chips["paged: not in place"] == {
        "label": "paged: not in place", "tone": "warn", "help": "gathered, then varlen_attn: why",
    }  # fmt: skip
    assert "contiguous: not in place" not in chips
