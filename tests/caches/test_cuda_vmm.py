"""Without CUDA the device's virtual memory says why it is not to be had."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvviz.caches import cuda_vmm
from kvviz.caches.cuda_vmm import DeviceRange, available
from kvviz.errors import CapacityError, KvvizError


def missing() -> Any:
    raise ImportError


def driver(**calls: Any) -> SimpleNamespace:
    """A driver of which only these calls are there, with the codes that matter."""
    result = SimpleNamespace(
        CUDA_SUCCESS=SimpleNamespace(name="CUDA_SUCCESS"),
        CUDA_ERROR_OUT_OF_MEMORY=SimpleNamespace(name="CUDA_ERROR_OUT_OF_MEMORY"),
        CUDA_ERROR_NO_DEVICE=SimpleNamespace(name="CUDA_ERROR_NO_DEVICE"),
    )
    attribute = SimpleNamespace(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED=102)
    made = SimpleNamespace(CUresult=result, CUdevice_attribute=attribute)
    for name, (code, *values) in calls.items():
        answer = (getattr(result, code), *values)
        setattr(made, name, lambda *_, answer=answer: answer)
    return made


@pytest.mark.parametrize(("calls", "said"), [
    ({"cuInit": ("CUDA_ERROR_NO_DEVICE",)},
     "Mapping GPU memory by the page needs a GPU and its driver (the CUDA driver answers "
     "CUDA_ERROR_NO_DEVICE. Serve on the CPU instead.)."),
    ({"cuInit": ("CUDA_SUCCESS",), "cuDeviceGetCount": ("CUDA_SUCCESS", 0)},
     "Mapping GPU memory by the page needs a GPU; the driver sees 0."),
    ({"cuInit": ("CUDA_SUCCESS",), "cuDeviceGetCount": ("CUDA_SUCCESS", 1),
      "cuDeviceGet": ("CUDA_SUCCESS", 0), "cuDeviceGetAttribute": ("CUDA_SUCCESS", 0)},
     "GPU 0 does not support mapping memory by the page."),
    ({"cuInit": ("CUDA_SUCCESS",), "cuDeviceGetCount": ("CUDA_SUCCESS", 1),
      "cuDeviceGet": ("CUDA_SUCCESS", 0), "cuDeviceGetAttribute": ("CUDA_SUCCESS", 1)},
     None),
])  # fmt: skip
def test_reason(monkeypatch: pytest.MonkeyPatch, calls: dict[str, tuple], said: str | None) -> None:
    """The page offers what the device can't do, or shows a stack trace instead of a sentence."""
    monkeypatch.setattr(cuda_vmm, "_driver", lambda: driver(**calls))
    assert available() == said


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """An ImportError reaches the page."""
    monkeypatch.setattr(cuda_vmm, "_driver", missing)
    sentence = "Mapping GPU memory by the page needs the package cuda-python, which is missing."
    assert available() == sentence
    with pytest.raises(KvvizError, match="cuda-python"):
        DeviceRange(1 << 30, 1 << 21)


def test_full_device_is_lack_of_capacity() -> None:
    """A full device is told as a failure of the driver."""
    full = driver()
    with pytest.raises(CapacityError, match="Choose fewer slots"):
        cuda_vmm._asked(full, (full.CUresult.CUDA_ERROR_OUT_OF_MEMORY,))
    assert cuda_vmm._asked(full, (full.CUresult.CUDA_SUCCESS, 5)) == 5
