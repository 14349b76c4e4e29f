"""Paged layout: fixed-size blocks in any order, and a block table that puts them in order.

    logical    0 1 2 | 3 4 5 | 6 . .          block size 3, 7 tokens
    physical   block 9, block 2, block 5      two slots of block 5 are the tail

A request is admitted when its first chunk, its whole prompt, or its prompt and output limit find
free blocks; blocks are taken as tokens are written (with `limit`: all at once). Any free block
will do, so a refusal is never `fragmented`; what paging wastes is the tail of each sequence's
last block.

Blocks are shared by ref count: among the samples of one prompt, and, with prefix sharing, among
requests whose prompts begin alike. A shared block that is written to is copied first.
"""

from __future__ import annotations

import numpy as np

from kvviz.allocators.blocks import BlockPool
from kvviz.caches.layout import AddressTable, Entry, Journal
from kvviz.caches.prefix import HashChain
from kvviz.config import RunConfig
from kvviz.records import (
    ADMITTED,
    CAPACITY,
    HOLE,
    NEVER,
    RESERVED,
    Columns,
    FreedBlocks,
    Move,
    Request,
    Verdict,
)

_NONE = np.zeros(0, np.int64)


class PagedLayout:
    """See `caches.layout.Layout`. Slots behind the last whole block are never used."""

    paged = True
    copies_on_write = True

    def __init__(self, config: RunConfig) -> None:
        paged = config.paged
        self.grain = paged.block_size
        self.capacity = config.memory.slots
        self.table = AddressTable(piece=self.grain, width=16)
        self._pool = BlockPool(self.capacity // self.grain, null=paged.null_block)
        self._page_blocks = paged.page_blocks
        self._requests: dict[int, Request] = {}
        self._chains: dict[int, HashChain] | None = {} if paged.prefix_sharing else None
        self._fresh: list[tuple[int, int, int]] = []
        # By line of the table: blocks held, and slots in them that are not written yet
        self._blocks = np.zeros(len(self.table.array), np.int64)
        self._room = np.zeros(len(self.table.array), np.int64)
        self._forked = False
        self._shared_tails: dict[int, int] = {}  # {block written in part, of several: slots}
        self._journal: Journal = []
        self.reconfigure(config)

    def reconfigure(self, config: RunConfig) -> None:
        self._admission = config.paged.admission
        self._chunk = config.engine.chunk or config.engine.token_budget
        self._watermark = int(config.paged.watermark * self._pool.usable_blocks)

    @property
    def free(self) -> int:
        return self._pool.free_blocks * self.grain

    @property
    def admissible(self) -> int:
        return self._grantable * self.grain

    @property
    def usable(self) -> int:
        """Slots in blocks that can be handed out."""
        return self._pool.usable_blocks * self.grain

    @property
    def shared_slots(self) -> int:
        """Written slots that more than one sequence counts, once for each further holder."""
        if self._chains is None and not self._forked:
            return 0
        again = int(np.maximum(self._pool.refs - 1, 0).sum()) * self.grain
        return again - sum(
            (int(self._pool.refs[block]) - 1) * (self.grain - offset)
            for block, offset in self._shared_tails.items()
        )

    def fits(self, count: int) -> bool:
        return self._count(count) <= self._grantable

    def need(self, request: Request, tokens: int) -> int:
        if self._admission == "limit":
            tokens = max(tokens, request.prompt_len + request.limit - 1)
        elif self._admission == "chunk":
            tokens = min(tokens, self._chunk)
        return self._count(tokens) * self.grain

    def question(self, request: Request, tokens: int) -> Verdict:
        return self._judge(request, tokens, self._hits(request, tokens))

    def admit(self, request: Request, tokens: int) -> Verdict:
        hits = self._hits(request, tokens)
        verdict = self._judge(request, tokens, hits)
        if not verdict.admitted:
            return verdict
        line = self._open(request)
        if len(hits):
            self._pool.share(hits)
            self._hold(line, hits)
            self._room[line] = 0
        if self._admission == "limit":
            self._take(line, self._count(self.need(request, tokens)) - len(hits))
        return verdict._replace(cached=len(hits) * self.grain)

    def append(self, request_id: int, count: int) -> Verdict:
        line = self.table.row(request_id)
        written = self._written(line)
        copied = self._shared_tail(line, written) if count else 0
        short = max(0, self._count(written + count) - int(self._blocks[line]))
        need = short + (copied > 0)
        if need > self._pool.free_blocks:
            kind = NEVER if need > self._pool.usable_blocks else CAPACITY
            return Verdict(kind, need * self.grain, self.free, self.free)
        if copied:
            self._copy_on_write(request_id, line, written // self.grain, copied)
        self._take(line, short)
        self._room[line] -= count
        if self._chains is not None and (written + count) // self.grain > written // self.grain:
            self._fresh.append((request_id, written // self.grain, (written + count) // self.grain))
        free = self.free
        return Verdict(ADMITTED, need * self.grain, free, free, moved=copied)

    def append_each(self, lines: np.ndarray) -> bool:
        """One more token for each of these lines of the table, or False and nothing is changed:
        blocks run short, or a block must be copied first."""
        if self._chains is not None or self._shared_tails:
            return False
        room = self._room[lines]
        full = room == 0
        count = int(np.count_nonzero(full))
        if count:
            ids = self._pool.take(count)
            if ids is None:
                return False
            self._forget_evicted(ids)
            short = lines[full]
            held = self._blocks[short]
            self.table.widen(int(held.max()) + 1)
            self.table.array[short, held] = ids * self.grain
            self._blocks[short] = held + 1
            room[full] = self.grain
        self._room[lines] = room - 1
        return True

    def fork(self, parent_id: int, child: Request) -> Verdict:
        """A sample of the same prompt: it shares every block that the parent has written."""
        parent = self.table.row(parent_id)
        written = self._written(parent)
        shared = self._ids(parent)[: self._count(written)]
        more = 0
        if self._admission == "limit":
            more = self._count(self.need(child, written)) - len(shared)
        if more > self._grantable:
            return Verdict(CAPACITY, more * self.grain, self.free, self.admissible)
        line = self._open(child)
        self._forked = True
        self._pool.share(shared)
        self._hold(line, shared)
        if written % self.grain:
            self._shared_tails[int(shared[-1])] = written % self.grain
        self._take(line, more)
        self._room[line] = int(self._blocks[line]) * self.grain - written
        return Verdict(ADMITTED, more * self.grain, self.free, self.admissible, cached=written)

    def release(self, request_id: int) -> None:
        line = self.table.row(request_id)
        freed = self._pool.drop(self._ids(line))
        self._blocks[line] = self._room[line] = 0
        if self._shared_tails:
            self._settle_tails()
        self.table.close(request_id)
        del self._requests[request_id]
        if self._chains is not None:
            del self._chains[request_id]
        self._forget(freed)

    def slots(self, request_id: int) -> np.ndarray:
        line = self.table.row(request_id)
        starts = self._ids(line) * self.grain
        every = (starts[:, None] + np.arange(self.grain, dtype=np.int32)).reshape(-1)
        return every[: self._written(line)]

    def written(self, request_id: int) -> int:
        return self._written(self.table.row(request_id))

    def holds(self, request_id: int) -> bool:
        return request_id in self._requests

    def held(self, request_id: int) -> int:
        return int(self._blocks[self.table.row(request_id)]) * self.grain

    def block_table(self, request_id: int) -> np.ndarray:
        """Physical block ids in logical order, int32 [blocks]."""
        return self._ids(self.table.row(request_id)).copy()

    def note(self, entry: Entry) -> None:
        self._journal.append(entry)

    def take_journal(self) -> Journal:
        self._register_fresh()
        journal, self._journal = self._journal, []
        return journal

    def cached_slots(self) -> np.ndarray:
        """Free slots that still hold a prefix, ascending."""
        idle = np.sort(self._pool.idle()) * self.grain
        return (idle[:, None] + np.arange(self.grain)).reshape(-1)

    def extras(self) -> dict[str, float]:
        """What only this layout counts: slots, or bytes where the name ends so."""
        lines = self._lines()
        found: dict[str, float] = {
            "table_bytes": self.table.array.nbytes,
            "tail": int(self._room[lines].sum()),
        }
        if self._chains is not None:
            found["cached_blocks"] = len(self._pool.idle())
        if self.shared_slots:
            found["shared_saved"] = self.shared_slots
        if self._page_blocks:
            found["returnable"] = self._returnable()
        return found

    def columns(self) -> Columns:
        count = self._pool.count
        used = np.zeros(count, np.int64)
        owner = np.full(count, HOLE, np.int64)
        owner[: self._pool.null] = RESERVED
        for request_id in reversed(self._requests):  # a shared block names the oldest holder
            line = self.table.row(request_id)
            ids = self._ids(line)
            owner[ids] = request_id
            full, tail = divmod(self._written(line), self.grain)
            used[ids[:full]] = self.grain
            if tail:
                used[ids[full]] = max(used[ids[full]], tail)
        start = np.arange(count, dtype=np.int64) * self.grain
        size = np.full(count, self.grain, np.int64)
        refs = self._pool.refs.astype(np.int64)
        cached = np.zeros(count, np.int64)
        cached[self._pool.idle()] = self.grain
        rest = self.capacity - count * self.grain
        if rest:  # slots behind the last whole block, which no block covers
            start, size = np.append(start, count * self.grain), np.append(size, rest)
            used, owner = np.append(used, 0), np.append(owner, RESERVED)
            refs, cached = np.append(refs, 1), np.append(cached, 0)
        return Columns(start, size, used, owner, refs, cached)

    def check(self) -> None:
        self._pool.check()
        refs = np.zeros(self._pool.count, np.int32)
        refs[: self._pool.null] = 1
        for request_id in self._requests:
            line = self.table.row(request_id)
            ids = self._ids(line)
            assert len(np.unique(ids)) == len(ids), f"{request_id} holds a block twice"
            assert 0 <= self._room[line] <= len(ids) * self.grain, f"{request_id} overflows"
            refs[ids] += 1
        assert np.array_equal(refs, self._pool.refs), "ref counts and block tables disagree"

    @property
    def _grantable(self) -> int:
        """Blocks that an admission may take. The watermark does not hold back an idle pool: a
        request that needs all of it would wait for ever."""
        free = self._pool.free_blocks
        return free if not self._requests else max(0, free - self._watermark)

    def _judge(self, request: Request, tokens: int, hits: np.ndarray) -> Verdict:
        """Hits that others hold need no free block; cached ones do, for they count as free."""
        ask = self.need(request, tokens)
        if self._admission == "chunk" and len(hits):
            known = len(hits) * self.grain
            ask = self._count(min(tokens, known + self._chunk)) * self.grain
        held = int((self._pool.refs[hits] > 0).sum()) if len(hits) else 0
        need = ask - held * self.grain
        # Admission looks at what is known now, but a life that can't ever fit would preempt
        # itself for ever, so it is told at once.
        life = self._count(request.life) * self.grain
        free, admissible = self.free, self.admissible
        if max(ask, life) > self.usable:
            return Verdict(NEVER, max(ask, life), free, admissible)
        return Verdict(ADMITTED if need <= admissible else CAPACITY, need, free, admissible)

    def _hits(self, request: Request, tokens: int) -> np.ndarray:
        """Ids of the leading full blocks found in memory. One token at least is computed, for
        its logits are wanted."""
        if self._chains is None:
            return _NONE
        found: list[int] = []
        for key in HashChain(request, self.grain).keys((tokens - 1) // self.grain):
            block = self._pool.find(key)
            if block is None:
                break
            found.append(block)
        return np.array(found, np.int64)

    def _register_fresh(self) -> None:
        """Blocks filled by the step that is about to be computed can be found from now on."""
        for request_id, first, last in self._fresh:
            if request_id not in self._requests:
                continue  # preempted in this very step: never computed
            ids = self._ids(self.table.row(request_id))
            assert self._chains is not None
            keys = self._chains[request_id].keys(last)
            for block, key in zip(ids[first:last].tolist(), keys[first:last], strict=True):
                self._pool.register(block, key)
        self._fresh.clear()

    def _copy_on_write(self, request_id: int, line: int, index: int, written: int) -> None:
        """The block that is written to next is shared: this sequence gets its own copy."""
        old = self.table.array[line, index : index + 1] // self.grain
        new = self._take_ids(1)
        self._journal.append(
            Move(int(old[0]) * self.grain, int(new[0]) * self.grain, written, request_id)
        )
        self._forget(self._pool.drop(old))
        self._settle_tails()
        self.table.array[line, index] = new[0] * self.grain

    def _shared_tail(self, line: int, written: int) -> int:
        """Slots to copy before the next write: those of a partly written block with other
        holders; 0 when there is none."""
        index, offset = divmod(written, self.grain)
        if not offset or not self._shared_tails:
            return 0
        block = self.table.array[line, index] // self.grain
        return offset if self._pool.refs[block] > 1 else 0

    def _open(self, request: Request) -> int:
        self.table.open(request.id)
        line = self.table.row(request.id)
        if line >= len(self._blocks):
            more = np.zeros(len(self.table.array) - len(self._blocks), np.int64)
            self._blocks = np.concatenate([self._blocks, more])
            self._room = np.concatenate([self._room, more])
        self._requests[request.id] = request
        if self._chains is not None:
            self._chains[request.id] = HashChain(request, self.grain)
        return line

    def _take(self, line: int, count: int) -> None:
        if count > 0:
            self._hold(line, self._take_ids(count))

    def _take_ids(self, count: int) -> np.ndarray:
        ids = self._pool.take(count)
        assert ids is not None, f"{count} free blocks were promised"
        self._forget_evicted(ids)
        return ids

    def _hold(self, line: int, ids: np.ndarray) -> None:
        held = int(self._blocks[line])
        self.table.widen(held + len(ids))
        self.table.array[line, held : held + len(ids)] = ids * self.grain
        self._blocks[line] = held + len(ids)
        self._room[line] += len(ids) * self.grain

    def _forget_evicted(self, ids: np.ndarray) -> None:
        """Blocks that came from the cache, the last of `ids`, still hold their old content."""
        if self._pool.evicted:
            self._forget(ids[len(ids) - self._pool.evicted :])

    def _forget(self, ids: np.ndarray) -> None:
        """What these blocks held is of no use now."""
        if len(ids):
            self._journal.append(FreedBlocks(ids, self.grain))

    def _settle_tails(self) -> None:
        """Tails that only one sequence holds by now are its own."""
        if self._shared_tails:
            self._shared_tails = {
                block: offset
                for block, offset in self._shared_tails.items()
                if self._pool.refs[block] > 1
            }

    def _written(self, line: int) -> int:
        return int(self._blocks[line]) * self.grain - int(self._room[line])

    def _count(self, slots: int) -> int:
        return -(-slots // self.grain)

    def _ids(self, line: int) -> np.ndarray:
        return self.table.array[line, : self._blocks[line]] // self.grain

    def _lines(self) -> np.ndarray:
        return np.array([self.table.row(r) for r in self._requests], np.int64)

    def _returnable(self) -> int:
        """Slots in pages without a block in use: what the device could have back."""
        whole = self._pool.count // self._page_blocks * self._page_blocks
        pages = self._pool.refs[:whole].reshape(-1, self._page_blocks)
        return int((~pages.any(axis=1)).sum()) * self._page_blocks * self.grain
