"""The device's virtual memory: by a driver that keeps the rules; and why it is not to be had."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

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
     "CUDA_ERROR_NO_DEVICE to cuInit. Serve on the CPU instead.)."),
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


GRANULE = 1 << 21
BASE = 1 << 40


class Code(NamedTuple):
    name: str


SUCCESS, FULL, INVALID = (
    Code(f"CUDA_{name}") for name in ("SUCCESS", "ERROR_OUT_OF_MEMORY", "ERROR_INVALID_VALUE")
)


class FakeDriver:
    """The driver's rules, kept in dicts: a call that breaks one is answered INVALID_VALUE.

    pages: how many the device has; refuses: {call: code} that it answers whatever is asked.
    """

    CUresult = SimpleNamespace(
        CUDA_SUCCESS=SUCCESS, CUDA_ERROR_OUT_OF_MEMORY=FULL, CUDA_ERROR_INVALID_VALUE=INVALID
    )
    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED=102
    )
    CUmemLocationType = SimpleNamespace(CU_MEM_LOCATION_TYPE_DEVICE="device")
    CUmemAllocationType = SimpleNamespace(CU_MEM_ALLOCATION_TYPE_PINNED="pinned")
    CUmemAccess_flags = SimpleNamespace(CU_MEM_ACCESS_FLAGS_PROT_READWRITE="readwrite")
    CUmemAllocationGranularity_flags = SimpleNamespace(CU_MEM_ALLOC_GRANULARITY_MINIMUM="minimum")
    CUmemLocation = CUmemAllocationProp = CUmemAccessDesc = SimpleNamespace

    def __init__(self, pages: int = 100) -> None:
        self.pages = pages
        self.refuses: dict[str, Any] = {}
        self.calls: list[str] = []
        self.reserved: dict[int, int] = {}
        self.created: set[int] = set()
        self.mapped: dict[int, tuple[int, int]] = {}  # address -> (size, handle)
        self.usable: set[int] = set()
        self._next = 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if not name.startswith("cu"):
            return found
        self.calls.append(name)
        refused = self.refuses.get(name)
        return found if refused is None else lambda *_: (refused,)

    def cuInit(self, flags: int) -> tuple:
        return (SUCCESS,)

    def cuDeviceGetCount(self) -> tuple:
        return SUCCESS, 2

    def cuDeviceGet(self, ordinal: int) -> tuple:
        return SUCCESS, f"device {ordinal}"

    def cuDeviceGetAttribute(self, attribute: int, device: str) -> tuple:
        return SUCCESS, int(attribute == 102 and device == "device 1")

    def cuMemGetAllocationGranularity(self, kind: Any, flag: str) -> tuple:
        good = (kind.type, kind.location.type, kind.location.id, flag) == (
            "pinned", "device", 1, "minimum",
        )  # fmt: skip
        return (SUCCESS, GRANULE) if good else (INVALID,)

    def cuMemAddressReserve(self, size: int, alignment: int, at: int, flags: int) -> tuple:
        if size % GRANULE or flags:
            return (INVALID,)
        self.reserved[BASE] = size
        return SUCCESS, BASE

    def cuMemAddressFree(self, pointer: int, size: int) -> tuple:
        if self.reserved.get(pointer) != size or self.mapped:
            return (INVALID,)
        del self.reserved[pointer]
        return (SUCCESS,)

    def cuMemCreate(self, size: int, kind: Any, flags: int) -> tuple:
        if size % GRANULE or flags:
            return (INVALID,)
        if len(self.created) == self.pages:
            return (FULL,)
        self._next += 1
        self.created.add(self._next)
        return SUCCESS, self._next

    def cuMemRelease(self, handle: int) -> tuple:
        if handle not in self.created or any(h == handle for _, h in self.mapped.values()):
            return (INVALID,)
        self.created.remove(handle)
        return (SUCCESS,)

    def cuMemMap(self, at: int, size: int, offset: int, handle: int, flags: int) -> tuple:
        inside = any(p <= at and at + size <= p + whole for p, whole in self.reserved.items())
        taken = any(a < at + size and at < a + length for a, (length, _) in self.mapped.items())
        if at % GRANULE or offset or flags or not inside or taken or handle not in self.created:
            return (INVALID,)
        self.mapped[at] = (size, handle)
        return (SUCCESS,)

    def cuMemUnmap(self, at: int, size: int) -> tuple:
        if self.mapped.get(at, (0, 0))[0] != size:
            return (INVALID,)
        del self.mapped[at]
        self.usable.discard(at)
        return (SUCCESS,)

    def cuMemSetAccess(self, at: int, size: int, access: list, count: int) -> tuple:
        if self.mapped.get(at, (0, 0))[0] != size or len(access) != count:
            return (INVALID,)
        good = access[0].flags == "readwrite" and access[0].location.id == 1
        self.usable |= {at} if good else set()
        return (SUCCESS,)

    def held(self, page: int) -> list[int]:
        """Pages that are mapped and may be used; nothing else is held."""
        assert set(self.mapped) == self.usable
        assert self.created == {handle for _, handle in self.mapped.values()}
        return sorted((at - BASE) // page for at in self.mapped)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    made = FakeDriver()
    monkeypatch.setattr(cuda_vmm, "_driver", lambda: made)
    return made


@pytest.mark.parametrize(("asked", "page"), [
    (1, GRANULE), (1 << 16, GRANULE), (GRANULE, GRANULE), (GRANULE + 1, 2 * GRANULE),
    (3 * GRANULE, 3 * GRANULE),
])  # fmt: skip
def test_sizes_are_rounded_to_what_the_driver_maps(fake: FakeDriver, asked: int, page: int) -> None:
    """The driver refuses each call, or the pool has fewer bytes than were asked for."""
    found = DeviceRange(5 * page + 1, asked, device=1)
    assert (found.granularity_bytes, found.page_bytes) == (GRANULE, page)
    assert found.total_bytes == 6 * page == fake.reserved[found.pointer]
    found.close()


def test_pages_come_and_go(fake: FakeDriver) -> None:
    """A page is mapped twice or used without access, or memory stays behind."""
    found = DeviceRange(8 * GRANULE, GRANULE, device=1)
    fake.calls.clear()
    found.touch(2 * GRANULE, GRANULE)
    assert fake.calls == ["cuMemCreate", "cuMemMap", "cuMemSetAccess"]
    found.touch(GRANULE, 3 * GRANULE)
    assert fake.held(GRANULE) == [1, 2, 3] and found.resident_bytes == 3 * GRANULE
    fake.calls.clear()
    found.give_back(2 * GRANULE, GRANULE)
    assert fake.calls == ["cuMemUnmap", "cuMemRelease"]
    found.give_back(0, 3 * GRANULE)
    assert fake.held(GRANULE) == [3] and found.resident_bytes == GRANULE
    found.close()
    found.close()
    assert fake.held(GRANULE) == [] and fake.reserved == {} and found.resident_bytes == 0


@pytest.mark.parametrize(("offset", "length"), [
    (1, GRANULE), (0, GRANULE + 1), (-GRANULE, GRANULE), (3 * GRANULE, 2 * GRANULE),
])  # fmt: skip
def test_only_whole_pages_inside(fake: FakeDriver, offset: int, length: int) -> None:
    found = DeviceRange(4 * GRANULE, GRANULE, device=1)
    for act in (found.touch, found.give_back):
        with pytest.raises(AssertionError):
            act(offset, length)


def test_full_device_is_lack_of_capacity(fake: FakeDriver) -> None:
    """A full device is told as a failure of the driver, without sizes, or half a call stays."""
    fake.pages = 3
    found = DeviceRange(8 * GRANULE, GRANULE, device=1)
    found.touch(0, GRANULE)
    with pytest.raises(CapacityError) as told:
        found.touch(0, 4 * GRANULE)
    assert str(told.value) == (
        "the GPU has no memory left (cuMemCreate). A page has 2,097,152 bytes, and 6,291,456 are "
        "mapped. Choose fewer slots."
    )
    assert fake.held(GRANULE) == [0]
    found.touch(GRANULE, 2 * GRANULE)
    assert fake.held(GRANULE) == [0, 1, 2]


@pytest.mark.parametrize("call", ["cuMemCreate", "cuMemMap", "cuMemSetAccess"])
def test_a_refused_page_leaves_nothing(fake: FakeDriver, call: str) -> None:
    """A page without access is taken for mapped, and is a fault on the device later."""
    found = DeviceRange(8 * GRANULE, GRANULE, device=1)
    found.touch(0, GRANULE)
    fake.refuses = {call: INVALID}
    with pytest.raises(KvvizError, match=f"answers CUDA_ERROR_INVALID_VALUE to {call}. Serve on"):
        found.touch(0, 2 * GRANULE)
    assert fake.held(GRANULE) == [0]
    fake.refuses = {call: 999}
    with pytest.raises(KvvizError, match=f"answers 999 to {call}"):
        found.touch(0, 2 * GRANULE)
    fake.refuses = {}
    found.touch(0, 2 * GRANULE)
    assert fake.held(GRANULE) == [0, 1]


def test_another_device_does_not_support_it(fake: FakeDriver) -> None:
    assert available(0) == "GPU 0 does not support mapping memory by the page."
    assert available(1) is None
    assert available(2) == "Mapping GPU memory by the page needs a GPU; the driver sees 2."
    with pytest.raises(KvvizError, match="GPU 0 does not support"):
        DeviceRange(GRANULE, GRANULE)
