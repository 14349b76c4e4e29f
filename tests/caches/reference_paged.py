"""What fits in blocks, and which of them are found again by their content."""

from __future__ import annotations

import numpy as np

from kvviz.records import ADMITTED, CAPACITY, NEVER, Request, Verdict
from tests.caches.reference import Grown, Reference, kind_of
from tests.caches.served import Served
from tests.helpers import indices


class Paged(Reference):
    """Blocks, found again by their content with prefix sharing.

    `index`: serial of a block's last token -> the block, for the blocks that may be found.
    """

    def __init__(self, served: Served) -> None:
        super().__init__(served)
        self.block = served.config.paged.block_size
        self.index: dict[int, int] = {}

    def rounded(self, slots: int) -> int:
        return -(-slots // self.block) * self.block

    def largest(self) -> int:
        held_back = int(self.served.config.paged.watermark * (self.usable // self.block))
        kept = held_back * self.block if self.served.live else 0
        return max(0, self.served.layout.free - kept)

    def admit(self, request: Request, tokens: int) -> Verdict:
        hits = self.hits(request, tokens)
        cached = len(hits) * self.block
        ask = tokens
        paged, engine = self.served.config.paged, self.served.config.engine
        if paged.admission == "limit":
            ask = max(tokens, request.prompt_len + request.limit - 1)
        elif paged.admission == "chunk":
            ask = min(tokens, cached + (engine.chunk or engine.token_budget))
        refs = self.served.refs()
        need = self.rounded(ask) - self.block * sum(refs[b * self.block] > 0 for b in hits)
        free, largest = self.served.layout.free, self.largest()
        most = max(self.rounded(ask), self.rounded(request.life))
        if most > self.usable:
            return Verdict(NEVER, most, free, largest)
        if need > largest:
            return Verdict(CAPACITY, need, free, largest)
        return Verdict(ADMITTED, need, free, largest, cached=cached)

    def append(self, request_id: int, count: int) -> Grown:
        layout = self.served.layout
        copied = self._tail_with_others(request_id)
        need = max(0, self.rounded(layout.written(request_id) + count) - layout.held(request_id))
        need += self.block if copied else 0
        kind = kind_of(need, layout.free, layout.free, self.usable)
        return Grown(kind, need, copied if kind == ADMITTED else 0)

    def append_each(self, ids: list[int]) -> bool:
        grown = [self.append(r, 1) for r in ids]
        room = sum(g.need for g in grown) <= self.served.layout.free
        return room and not any(self._tail_with_others(r) for r in ids)

    def fork(self, parent_id: int, child: Request) -> bool:
        if self.served.config.paged.admission != "limit":
            return True
        written = self.served.layout.written(parent_id)
        last = max(written, child.prompt_len + child.limit - 1)
        shared = written - written % self.block if last > written else self.rounded(written)
        return self.rounded(last) - shared <= self.largest()

    def written(self, appended: list[tuple[int, int, int]]) -> None:
        if not self.served.config.paged.prefix_sharing:
            return
        self._prune()
        for request_id, first, last in appended:
            serials = self.served.serials(request_id, last)
            slots = indices(self.served.layout, request_id)
            for at in range(first // self.block, last // self.block):
                block = int(slots[at * self.block]) // self.block
                if block not in self.index.values():
                    self.index.setdefault(serials[(at + 1) * self.block - 1], block)

    def hits(self, request: Request, tokens: int) -> list[int]:
        """The leading full blocks that are in memory; the last token is computed always."""
        self._prune()
        serials = self.served.texts.serials(request, tokens)
        found: list[int] = []
        for at in range((tokens - 1) // self.block):
            block = self.index.get(serials[(at + 1) * self.block - 1])
            if block is None:
                break
            found.append(block)
        return found

    def _prune(self) -> None:
        """Forget blocks that were handed out for other content."""
        columns = self.served.layout.columns()
        cached = set((columns.start[columns.cached > 0] // self.block).tolist())
        held = set()
        for request_id in self.served.live:
            slots = indices(self.served.layout, request_id)
            ends = np.arange(self.block - 1, self.served.done[request_id], self.block)
            serials = self.served.serials(request_id, self.served.done[request_id])
            held |= {(serials[i], int(slots[i]) // self.block) for i in ends.tolist()}
        self.index = {s: b for s, b in self.index.items() if b in cached or (s, b) in held}

    def _tail_with_others(self, request_id: int) -> int:
        """Written slots of the block that is written to next, when others hold it too."""
        written = self.served.layout.written(request_id)
        if not written % self.block:
            return 0
        slot = indices(self.served.layout, request_id)[-1]
        return written % self.block if self.served.refs()[slot] > 1 else 0
