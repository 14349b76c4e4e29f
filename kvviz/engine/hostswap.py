"""Room in host memory for the K and V of preempted sequences. Bookkeeping in slots."""

from __future__ import annotations


class HostSwap:
    """`capacity` slots, handed out in multiples of `grain` (whole blocks are copied)."""

    def __init__(self, capacity: int, grain: int) -> None:
        self.capacity = capacity
        self._grain = grain
        self._held: dict[int, int] = {}

    @property
    def free(self) -> int:
        return self.capacity - sum(self._held.values())

    def put(self, request_id: int, slots: int) -> bool:
        """Room for this sequence, or False and nothing changes."""
        size = -(-slots // self._grain) * self._grain
        if size > self.free:
            return False
        self._held[request_id] = size
        return True

    def drop(self, request_id: int) -> None:
        self._held.pop(request_id, None)
