"""Virtual memory of a CUDA device through the driver: reserve addresses, map memory under them.

    cuMemAddressReserve  addresses only              cuMemAddressFree
    cuMemCreate          a piece of physical memory  cuMemRelease
    cuMemMap             puts it under an address    cuMemUnmap
    cuMemSetAccess       lets the device use it

Sizes and addresses are multiples of the granularity; only whole mappings are unmapped; a piece is
freed when it is unmapped *and* released; a reservation is freed as it was made, with nothing
mapped in it (CUDA driver API, virtual memory management).

As in `reserved.ReservedRange`, of which this is the twin for a device. Needs the package
`cuda-python` and a current CUDA context (torch makes one). The stock driver maps pages of
2 MiB: what it says (`granularity_bytes`) counts, whatever `virtual.page_bytes` asks for.

A mapping must not go while the device may still read it: synchronise before `give_back`.
"""

from __future__ import annotations

from typing import Any

from kvviz.errors import CapacityError, KvvizError


def _driver() -> Any:
    """`cuda.bindings.driver`, or `cuda.cuda` before version 12.6. Raises ImportError."""
    try:
        from cuda.bindings import driver
    except ImportError:
        from cuda import cuda as driver
    return driver


def available(device: int = 0) -> str | None:
    """Why memory can't be mapped by the page on this device, or None when it can."""
    try:
        driver = _driver()
    except ImportError:
        return "Mapping GPU memory by the page needs the package cuda-python, which is missing."
    try:
        _asked(driver, "cuInit", 0)
        count = _asked(driver, "cuDeviceGetCount")
        if device >= count:
            return f"Mapping GPU memory by the page needs a GPU; the driver sees {count}."
        attribute = driver.CUdevice_attribute
        handle = _asked(driver, "cuDeviceGet", device)
        supported = _asked(
            driver,
            "cuDeviceGetAttribute",
            attribute.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
            handle,
        )
    except (KvvizError, RuntimeError, OSError) as error:  # no libcuda, or no driver behind it
        return f"Mapping GPU memory by the page needs a GPU and its driver ({error})."
    return None if supported else f"GPU {device} does not support mapping memory by the page."


class DeviceRange:
    """`total_bytes` of device addresses at `pointer`; memory by pages of `page_bytes`.

    `page_bytes` is rounded up to the driver's granularity. Offsets and lengths are bytes in whole
    pages. Raises KvvizError when the driver says no, CapacityError when the device is full.
    """

    def __init__(self, total_bytes: int, page_bytes: int, device: int = 0) -> None:
        if reason := available(device):
            raise KvvizError(reason)
        self._driver = driver = _driver()
        location = driver.CUmemLocation()
        location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        location.id = device
        self._kind = driver.CUmemAllocationProp()
        self._kind.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        self._kind.location = location
        self._access = driver.CUmemAccessDesc()
        self._access.location = location
        self._access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        minimum = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        self.granularity_bytes = int(
            self._ask("cuMemGetAllocationGranularity", self._kind, minimum)
        )
        self.page_bytes = _up(page_bytes, self.granularity_bytes)
        self.total_bytes = _up(total_bytes, self.page_bytes)
        self._handles: dict[int, Any] = {}  # page -> physical memory
        self.pointer = int(self._ask("cuMemAddressReserve", self.total_bytes, 0, 0, 0))

    @property
    def resident_bytes(self) -> int:
        """Physical memory under this range: what the driver was asked for and gave."""
        return len(self._handles) * self.page_bytes

    def touch(self, offset: int, length: int) -> None:
        """Map memory under these pages where there is none. What it holds is undefined.

        When the device has not enough for all of them, none is mapped anew.
        """
        mapped: list[int] = []
        try:
            for page in self._pages(offset, length):
                if page not in self._handles:
                    self._map(page)
                    mapped.append(page)
        except KvvizError:
            for page in mapped:
                self._unmap(page)
            raise

    def give_back(self, offset: int, length: int) -> None:
        """Unmap these pages; an access to them is then a fault on the device."""
        for page in self._pages(offset, length):
            if page in self._handles:
                self._unmap(page)

    def close(self) -> None:
        """Give back memory and addresses. May be called twice."""
        if self.pointer:
            self.give_back(0, self.total_bytes)
            self._ask("cuMemAddressFree", self.pointer, self.total_bytes)
            self.pointer = 0

    def _map(self, page: int) -> None:
        at, size = self._at(page), self.page_bytes
        handle = self._ask("cuMemCreate", size, self._kind, 0)
        try:
            self._ask("cuMemMap", at, size, 0, handle, 0)
        except KvvizError:
            self._ask("cuMemRelease", handle)
            raise
        self._handles[page] = handle
        try:
            self._ask("cuMemSetAccess", at, size, [self._access], 1)
        except KvvizError:  # mapped, but a fault for whoever touches it
            self._unmap(page)
            raise

    def _unmap(self, page: int) -> None:
        self._ask("cuMemUnmap", self._at(page), self.page_bytes)
        self._ask("cuMemRelease", self._handles.pop(page))

    def _at(self, page: int) -> int:
        return self.pointer + page * self.page_bytes

    def _pages(self, offset: int, length: int) -> range:
        assert offset % self.page_bytes == 0 == length % self.page_bytes, (
            f"[{offset}, {offset + length}) is not in whole pages of {self.page_bytes}"
        )
        assert offset >= 0 and offset + length <= self.total_bytes, "outside of the range"
        return range(offset // self.page_bytes, (offset + length) // self.page_bytes)

    def _ask(self, call: str, *words: Any) -> Any:
        try:
            return _asked(self._driver, call, *words)
        except CapacityError as error:
            raise CapacityError(
                f"{error} A page has {self.page_bytes:,} bytes, and {self.resident_bytes:,} are "
                "mapped. Choose fewer slots."
            ) from error


def _asked(driver: Any, call: str, *words: Any) -> Any:
    """The value of a driver call, which answers (CUresult, value...).

    Raises CapacityError when the device is full, KvvizError with the driver's code otherwise.
    """
    code, *values = getattr(driver, call)(*words)
    if code == driver.CUresult.CUDA_SUCCESS:
        return values[0] if values else None
    if code == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise CapacityError(f"the GPU has no memory left ({call}).")
    name = getattr(code, "name", code)  # a newer driver's code has no name yet
    raise KvvizError(f"the CUDA driver answers {name} to {call}. Serve on the CPU instead.")


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
