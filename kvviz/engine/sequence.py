"""A Request being served. Changed by the scheduler and the engine only."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.records import Request


@dataclass(slots=True, eq=False)
class Sequence:
    """`tokens` are known (prompt and generated), `written` of them are in the cache.

    A step writes one chunk; when all known tokens are written, the last row yields the next
    one. The final token is sampled and never written: with `life` slots written it is done.
    `swapped` tokens lie in host memory, while it waits to come back. `lost`: the most that were
    ever in the cache and thrown away; `recomputed` counts them, less those that were found again.
    """

    request: Request
    arrived: int
    tokens: int = 0
    written: int = 0
    swapped: int = 0
    admitted: int = -1
    first_refusal: str = ""
    preemptions: int = 0
    recomputed: int = 0
    lost: int = 0
    life: int = 0

    def __post_init__(self) -> None:
        self.tokens = self.request.prompt_len
        self.life = self.request.life

    @property
    def generated(self) -> int:
        """Tokens of its output so far."""
        return self.tokens - self.request.prompt_len

    @property
    def pending(self) -> int:
        """Known tokens that are not in the cache yet; at least 1 while it runs."""
        return self.tokens - self.written

    @property
    def forks(self) -> bool:
        """Does its next token begin the siblings too?"""
        return self.request.samples > 1 and not self.generated
