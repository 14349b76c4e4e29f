"""The ways of handing memory out that a plan compares, and what each takes for a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kvviz.allocators.reserve import RESERVATIONS
from kvviz.capacity.plan import Plan
from kvviz.records import Request


@dataclass(frozen=True)
class Method:
    """reservation: '' where slots are taken as tokens come."""

    lane: str
    reservation: str
    says: str

    @property
    def settings(self) -> dict[str, Any]:
        chosen = {"contiguous.reservation": self.reservation} if self.reservation else {}
        return {"lanes": self.lane, **chosen}

    def slots(self, request: Request, plan: Plan) -> int:
        """Slots that the request holds at the end of its life."""
        if not self.reservation:
            return plan.in_blocks(request.life)
        return RESERVATIONS[self.reservation](request, request.prompt_len)


METHODS: dict[str, Method] = {
    "contiguous, max": Method("contiguous", "max", "one region of max_len a request"),
    "contiguous, pow2": Method("contiguous", "pow2", "output rounded up to a power of two"),
    "contiguous, oracle": Method("contiguous", "oracle", "the true length, known beforehand"),
    "paged": Method("paged", "", "whole blocks, as tokens come"),
}
