"""What the device says of its own memory, and torch's record of it for pytorch.org/memory_viz.

On the CPU there is no such thing but the free memory: the rest is None, or refused with words.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from kvviz.caches.budget import MiB, host_memory_bytes
from kvviz.errors import CapacityError, ConfigError
from kvviz.records import DeviceMemory

SNAPSHOT_ENTRIES = 100_000  # allocations and frees that are remembered


def device_memory(device: torch.device) -> DeviceMemory | None:
    """None on the CPU, where torch counts nothing."""
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return DeviceMemory(
        torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device), free, total
    )


def free_bytes(device: torch.device) -> int:
    """What pools could take now; what torch has reserved and does not use counts as free."""
    memory = device_memory(device)
    if memory is None:
        return host_memory_bytes()
    return memory.free_bytes + memory.reserved_bytes - memory.allocated_bytes


def give_back_unused(device: torch.device) -> None:
    """Have torch return what it has reserved and does not use: a pool needs one piece."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


@contextmanager
def told(device: torch.device, what: str, advice: str) -> Iterator[None]:
    """The device's OutOfMemoryError becomes a CapacityError with both sizes.

    what: the subject of a sentence, such as `a step of 64 tokens`."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        asked = re.search(r"Tried to allocate ([\d.]+ \w+)", str(error))
        raise CapacityError(
            f"{what} asked for {asked[1] if asked else 'more memory'}, and "
            f"{free_bytes(device) / MiB:,.0f} MiB are free on the device. {advice}"
        ) from error


def start_recording(device: torch.device) -> None:
    """Remember allocations from now on, so that a snapshot has a past. Raises ConfigError."""
    _need_gpu(device)
    torch.cuda.memory._record_memory_history(max_entries=SNAPSHOT_ENTRIES, stacks="python")


def memory_snapshot(device: torch.device) -> bytes:
    """Torch's snapshot as a pickle, which pytorch.org/memory_viz reads. Raises ConfigError."""
    _need_gpu(device)
    return pickle.dumps(torch.cuda.memory._snapshot(device))


def _need_gpu(device: torch.device) -> None:
    if device.type != "cuda":
        raise ConfigError(
            "a memory snapshot shows the GPU's allocator, and this runs on the CPU. "
            "Leave out --memory-snapshot, or run where torch sees a GPU."
        )
