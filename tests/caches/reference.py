"""What is true of any layout. What fits is told from the map, by the rules of each kind."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from kvviz.caches.budget import PoolBudget
from kvviz.caches.store import KVStore
from kvviz.caches.virtual_store import store_for
from kvviz.records import ADMITTED, CAPACITY, FRAGMENTED, NEVER, RESERVED, Request, Verdict
from kvviz.shapes import ModelShape
from tests.caches.served import Served
from tests.helpers import indices


class Grown(NamedTuple):
    """The answer to an append. moved None: any number of slots."""

    kind: str
    need: int
    moved: int | None


class Reference:
    """None stands for no opinion."""

    def __init__(self, served: Served) -> None:
        self.served = served

    def store(self, shape: ModelShape) -> KVStore:
        return store_for(
            self.served.layout,
            shape,
            torch.device("cpu"),
            budget=PoolBudget(1 << 24),
            poison=True,
        )

    @property
    def usable(self) -> int:
        """Slots that can be handed out."""
        return int((self.served.owners() != RESERVED).sum())

    @property
    def longest(self) -> int:
        """The largest need that is not `never`."""
        return self.usable

    def largest(self) -> int | None:
        """The largest request that finds a place now."""
        return None

    def admit(self, request: Request, tokens: int) -> Verdict | None:
        return None

    def append(self, request_id: int, count: int) -> Grown | None:
        return None

    def append_each(self, ids: list[int]) -> bool | None:
        """Is there room for one more token of each, without a copy?"""
        return None

    def fork(self, parent_id: int, child: Request) -> bool | None:
        return None

    def written(self, appended: list[tuple[int, int, int]]) -> None:
        """Tokens (request, from, to) were written, in this order."""

    def placed(self, slots: np.ndarray, parts: list[int]) -> None:
        """The tokens claimed got these slots, in the order of the claims, in these parts."""

    def physical(self, request_id: int) -> np.ndarray:
        """Where the map shows the written slots of a request, in the order of its tokens."""
        return indices(self.served.layout, request_id)

    def check(self, store: KVStore) -> None:
        """What else must be true between two steps."""


def kind_of(need: int, free: int, largest: int, capacity: int) -> str:
    """Lack of memory first, then lack of a hole."""
    for limit, kind in ((capacity, NEVER), (free, CAPACITY), (largest, FRAGMENTED)):
        if need > limit:
            return kind
    return ADMITTED
