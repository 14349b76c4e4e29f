"""One region a request: what fits in holes, by the rounding of each allocator."""

from __future__ import annotations

from kvviz.allocators.reserve import RESERVATIONS
from kvviz.records import ADMITTED, CAPACITY, FRAGMENTED, HOLE, Request, Verdict
from tests.caches.reference import Grown, Reference, kind_of
from tests.helpers import runs


class Contiguous(Reference):
    @property
    def allocator(self) -> str:
        return self.served.config.contiguous.allocator

    @property
    def longest(self) -> int:
        return self._reach(self.served.layout.capacity)

    def largest(self) -> int:
        owners = self.served.owners()
        if self.allocator == "buddy":
            return largest_buddy((owners == HOLE).tolist())
        return max((self._reach(hole.size) for hole in runs(owners.tolist())), default=0)

    def admit(self, request: Request, tokens: int) -> Verdict:
        reservation = RESERVATIONS[self.served.config.contiguous.reservation]
        need = self._granted(reservation(request, tokens))
        if request.life > self.longest:
            need = max(need, request.life)
        free, largest = self.served.layout.free, self.largest()
        kind = kind_of(need, free, largest, self.longest)
        if kind == FRAGMENTED and self._compacts and self._hole_for(need) <= free:
            kind = ADMITTED
        return Verdict(kind, need, free, largest)

    def append(self, request_id: int, count: int) -> Grown:
        layout = self.served.layout
        free, held = layout.free, layout.held(request_id)
        written = layout.written(request_id)
        short = written + count - held
        if short <= 0 or self._grows_in_place(request_id, held, short):
            return Grown(ADMITTED, count, 0)
        size = self._granted(held + short)
        if size <= self.largest():
            return Grown(ADMITTED, count, written)
        if self._compacts:
            fits = self._hole_for(size) <= free or (self._slides_last(request_id) and short <= free)
            return Grown(ADMITTED, count, None) if fits else Grown(CAPACITY, size, 0)
        if size - held > free:
            return Grown(CAPACITY, size, 0)
        return Grown(FRAGMENTED, size - held, 0)

    def fork(self, parent_id: int, child: Request) -> bool:
        """A region of its own; nothing is moved to make room for it."""
        reserve = RESERVATIONS[self.served.config.contiguous.reservation]
        need = self._granted(reserve(child, self.served.layout.written(parent_id)))
        return need <= self.largest()

    @property
    def _compacts(self) -> bool:
        return self.served.config.contiguous.compaction == "on_refusal"

    def _granted(self, size: int) -> int:
        """Slots that a region of this size takes."""
        if self.allocator != "buddy" or size > self.longest:
            return size
        return power_of_two(size)

    def _reach(self, hole: int) -> int:
        """The largest request that is found in a hole of this size."""
        if self.allocator == "buddy":
            return 1 << hole.bit_length() - 1
        step = tlsf_step(hole) if self.allocator == "tlsf" else 1
        return hole // step * step

    def _hole_for(self, size: int) -> int:
        """The smallest hole in which a request of this size is found."""
        step = tlsf_step(size) if self.allocator == "tlsf" else 1
        return -(-self._granted(size) // step) * step

    def _grows_in_place(self, request_id: int, held: int, short: int) -> bool:
        owners = self.served.owners().tolist()
        start = owners.index(request_id)
        size = self._granted(held + short)
        behind = owners[start + held : start + size]
        if start + size > len(owners) or any(owner != HOLE for owner in behind):
            return False
        return self.allocator != "buddy" or start % size == 0

    def _slides_last(self, request_id: int) -> bool:
        """Does all that is free lie behind this request, once all have slid down?"""
        settings = self.served.config.contiguous
        owners = self.served.owners().tolist()
        end = len(owners) - owners[::-1].index(request_id)
        slides = self.allocator != "buddy" and settings.compact_by == "slide"
        return slides and all(owner == HOLE for owner in owners[end:])


def power_of_two(size: int) -> int:
    """The smallest one that is not below `size`."""
    return 1 << (size - 1).bit_length()


def tlsf_step(size: int) -> int:
    """Each power of two is cut into 32 classes; below 64 slots each size has its own."""
    return max(1, 1 << size.bit_length() - 6) if size >= 64 else 1


def largest_buddy(free: list[bool]) -> int:
    """The largest power of two of free slots that lie at a multiple of their number."""
    size = 1 << len(free).bit_length()
    while size:
        if any(all(free[at : at + size]) for at in range(0, len(free) - size + 1, size)):
            return size
        size //= 2
    return 0
