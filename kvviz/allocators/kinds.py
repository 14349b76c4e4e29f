"""Every allocator by name. The same dict feeds the select box, the command line and the tests."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from kvviz.allocators.allocator import Allocator
from kvviz.allocators.buddy import BuddyAllocator
from kvviz.allocators.fits import CHOICES, FitAllocator
from kvviz.allocators.tlsf import TlsfAllocator


class MakeAllocator(Protocol):
    def __call__(
        self, capacity: int, *, coalesce: str = "immediate", order: str = "address"
    ) -> Allocator: ...


ALLOCATORS: dict[str, MakeAllocator] = {
    **{fit: partial(FitAllocator, fit=fit) for fit in CHOICES},
    "buddy": BuddyAllocator,
    "tlsf": TlsfAllocator,
}
