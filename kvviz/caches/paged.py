"""Paged layout: fixed-size blocks in any order, and a block table that puts them in order.

    logical    0 1 2 | 3 4 5 | 6 . .          block size 3, 7 tokens
    physical   block 9, block 2, block 5      two slots of block 5 are the tail

A request is admitted when its first chunk, its whole prompt, or its prompt and output limit find
free blocks; blocks are taken as tokens are written (with `limit`: all at once). Any free block
will do, so a refusal is never `fragmented`; what paging wastes is the tail of each sequence's
last block.

Blocks are shared by ref count: among the samples of one prompt, and, with prefix sharing, among
requests whose prompts begin alike. A shared block that is written to is copied first. With
`limit`, what the samples will need is held from the admission of their prompt on, and each has its
copy of the prompt's last block when it starts: nobody who is admitted runs short of blocks.
"""

from __future__ import annotations

import numpy as np

from kvviz.allocators.blocks import BlockPool
from kvviz.caches.block_rows import BlockRows
from kvviz.caches.layout import AddressTable, Entry, Journal
from kvviz.caches.prefix import Prefixes
from kvviz.config import RunConfig
from kvviz.records import (
    ADMITTED,
    CAPACITY,
    NEVER,
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
        self._rows = BlockRows(self._pool, self.grain, self.capacity)
        self._prefixes = Prefixes(self._pool, self.grain) if paged.prefix_sharing else None
        self._fresh: list[tuple[int, int, int]] = []
        self._blocks = self._room = self._id = _NONE
        self._lengthen()
        self._forked = False
        self._promised: dict[int, int] = {}  # {request: its last blocks, held for its samples}
        self._shared_tails: dict[int, int] = {}  # {block written in part, of several: slots}
        self._journal: Journal = []
        self.reconfigure(config)

    def __getstate__(self) -> dict[str, object]:
        views = ("_blocks_of", "_room_of")  # of arrays: a copy has views of its own
        return {name: value for name, value in vars(self).items() if name not in views}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._blocks_of, self._room_of = self._blocks.data, self._room.data

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
    def steadfast(self) -> bool:
        """A prefix may be found that was not there; blocks held for samples may come free."""
        return self._prefixes is None and self._admission != "limit"

    @property
    def usable(self) -> int:
        """Slots in blocks that can be handed out."""
        return self._pool.usable_blocks * self.grain

    @property
    def shared_slots(self) -> int:
        """Written slots that more than one sequence counts, once for each further holder."""
        shared = self._pool.again * self.grain
        for block, offset in self._shared_tails.items():
            shared -= (int(self._pool.refs[block]) - 1) * (self.grain - offset)
        return shared

    def fits(self, count: int) -> bool:
        return self._count(count) <= self._grantable

    def need(self, request: Request, tokens: int) -> int:
        if self._admission == "limit":
            return (self._own(request, tokens) + self._for_samples(request, tokens)) * self.grain
        if self._admission == "chunk":
            tokens = min(tokens, self._chunk)
        return self._count(tokens) * self.grain

    def question(self, request: Request, tokens: int) -> Verdict:
        return self._judge(request, tokens, self._hits(request, tokens))

    def question_return(self, request: Request, tokens: int, back: int) -> Verdict:
        """`question` for one of whose tokens `back` come from host memory all at once."""
        return self._judge(request, tokens, self._hits(request, tokens), back)

    def admit(self, request: Request, tokens: int) -> Verdict:
        hits = self._hits(request, tokens)
        verdict = self._judge(request, tokens, hits)
        if not verdict.admitted:
            return verdict
        line = self._open(request)
        if len(hits):
            self._pool.share(hits)
            self._hold(line, hits)
            self._room_of[line] = 0
            verdict = verdict._replace(cached=len(hits) * self.grain)
        if self._admission == "limit":
            more = self._for_samples(request, tokens)
            self._take(line, self._own(request, tokens) + more - len(hits))
            if more:
                self._promised[request.id] = more
        return verdict

    def append(self, request_id: int, count: int) -> Verdict:
        line, grain = self.table.row(request_id), self.grain
        if self._promised and self._written(line) >= self._requests[request_id].prompt_len:
            self._give_up_promise(request_id, line)  # who found no turn computes the prompt anew
        room = self._room_of[line]
        written = self._blocks_of[line] * grain - room
        copied = self._shared_tail(line, written) if count and self._shared_tails else 0
        short = self._count(count - room) if count > room else 0
        need = short + (copied > 0)
        if need > self._pool.free_blocks:
            kind = NEVER if need > self._pool.usable_blocks else CAPACITY
            return Verdict(kind, need * grain, self.free, self.free)
        if copied:
            self._copy_on_write(request_id, line, written // grain, copied)
        self._take(line, short)
        self._room_of[line] -= count
        if self._prefixes is not None and (written + count) // grain > written // grain:
            self._fresh.append((request_id, written // grain, (written + count) // grain))
        free = self.free
        return Verdict(ADMITTED, need * grain, free, free, copied)

    def append_each(self, lines: np.ndarray) -> bool:
        """One more token for each of these lines of the table, or False and nothing is changed:
        blocks run short, or a block must be copied first."""
        if self._shared_tails or self._promised:
            return False
        room = self._room[lines]
        full = (room == 0).nonzero()[0]
        if len(full):
            ids = self._pool.take(len(full))
            if ids is None:
                return False
            self._forget_evicted(ids)
            short = lines[full]
            if not self._shares:
                self._rows.hold(ids, self._id[short])
            held = self._blocks[short]
            self.table.widen(max(held.tolist()) + 1)  # few: a reduction costs more
            self.table.array[short, held] = ids * self.grain
            self._blocks[short] = held + 1
            room[full] = self.grain
        self._room[lines] = room - 1
        if self._prefixes is not None:
            self._note_filled(lines[(room - 1) % self.grain == 0])
        return True

    def fork(self, parent_id: int, child: Request) -> Verdict:
        """A sample of the same prompt: it shares every block that the parent has written. With
        admission by `limit` it gets its own copy of the last one, and all that it will need."""
        parent = self.table.row(parent_id)
        written = self._written(parent)
        full, tail = divmod(written, self.grain)
        last = max(written, child.prompt_len + child.limit - 1)
        copies = self._admission == "limit" and last > written
        more = self._count(last) - full if copies else 0
        promised = more <= self._promised.get(parent_id, 0)
        if more > self._grantable and not promised:
            return Verdict(CAPACITY, more * self.grain, self.free, self.admissible)
        shared = self._ids(parent)[: full if copies else self._count(written)]
        source = int(self.table.array[parent, full]) if copies and tail else 0
        line = self._open(child)
        self._forked = True
        self._pool.share(shared)
        self._hold(line, shared)
        if promised and more:
            self._hold(line, self._cut(parent, more))
            self._keep_promise(parent_id, more)
        else:
            self._take(line, more)
        self._room_of[line] = self._blocks_of[line] * self.grain - written
        copied = tail if copies else 0
        if copied:
            target = int(self.table.array[line, full])
            self._journal.append(Move(source, target, copied, child.id))
        elif tail:
            self._shared_tails[int(shared[-1])] = tail
        verdict = Verdict(ADMITTED, more * self.grain, self.free, self.admissible, moved=copied)
        return verdict._replace(cached=written - copied)

    def release(self, request_id: int) -> None:
        line = self.table.row(request_id)
        freed = self._pool.drop(self._ids(line))
        self._blocks_of[line] = self._room_of[line] = 0
        self._promised.pop(request_id, None)
        self._settle_tails()
        self.table.close(request_id)
        del self._requests[request_id]
        if self._prefixes is not None:
            self._prefixes.close(request_id)
        if not self._shares:
            self._rows.free(freed)
        self._forget(freed)

    def slots(self, request_id: int) -> np.ndarray:
        line = self.table.row(request_id)
        starts = self.table.array[line, : self._blocks_of[line]]
        every = (starts[:, None] + np.arange(self.grain, dtype=np.int32)).reshape(-1)
        return every[: self._written(line)]

    def written(self, request_id: int) -> int:
        return self._written(self.table.row(request_id))

    def holds(self, request_id: int) -> bool:
        return request_id in self._requests

    def held(self, request_id: int) -> int:
        return self._blocks_of[self.table.row(request_id)] * self.grain

    def sizes_each(self, lines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of each of these lines of the table: (slots written, slots held), int64 [n] each."""
        held = self._blocks[lines] * self.grain
        return held - self._room[lines], held

    def block_table(self, request_id: int) -> np.ndarray:
        """Physical block ids in logical order, int64 [blocks]."""
        return self._ids(self.table.row(request_id))

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
        found: dict[str, float] = {
            "table_bytes": self.table.array.nbytes,
            "tail": int(self._room.sum()),
        }
        if self._prefixes is not None:
            found["cached_blocks"] = self._pool.cached_blocks
        if shared := self.shared_slots:
            found["shared_saved"] = shared
        if self._page_blocks:
            found["returnable"] = self._returnable()
        return found

    def columns(self) -> Columns:
        lines = (self._room > 0).nonzero()[0]  # all other blocks that are held are full
        blocks = self._blocks[lines]
        written = blocks * self.grain - self._room[lines]
        full = written // self.grain
        tail = written - full * self.grain
        part = tail > 0
        unwritten = blocks - full - part
        ahead = unwritten.nonzero()[0]  # of them the last blocks hold nothing yet
        return self._rows.columns(
            (self._ids_at(lines[part], full[part]), tail[part]),
            self._ids_from(lines[ahead], (full + part)[ahead], unwritten[ahead])
            if len(ahead)
            else _NONE,
            self._holders() if self._shares else None,
        )

    def check(self) -> None:
        self._pool.check()
        requests, count = np.fromiter(self._requests, np.int64), self._pool.count
        lines = self.table.rows(self._requests)
        held, room = self._blocks[lines], self._room[lines]
        over = (room < 0) | (room > held * self.grain)
        assert not over.any(), f"{requests[over]} overflow"
        holder = np.arange(len(lines)).repeat(held)
        ids = self._ids_from(lines, np.zeros_like(lines), held)
        nowhere = (ids < 0) | (ids >= count)
        assert not nowhere.any(), f"{requests[holder[nowhere]]} have a block of nowhere"
        pairs = np.sort(holder * count + ids)
        twice = pairs[1:][pairs[1:] == pairs[:-1]] // count
        assert not len(twice), f"{requests[twice]} hold a block twice"
        refs = np.bincount(ids, minlength=count)
        refs[: self._pool.null] += 1
        assert np.array_equal(refs, self._pool.refs), "ref counts and block tables disagree"

    @property
    def _grantable(self) -> int:
        """Blocks that an admission may take. The watermark does not hold back an idle pool: a
        request that needs all of it would wait for ever."""
        free = self._pool.free_blocks
        return free if not self._requests else max(0, free - self._watermark)

    def _judge(self, request: Request, tokens: int, hits: np.ndarray, back: int = 0) -> Verdict:
        """Hits that others hold need no free block; cached ones do, for they count as free."""
        ask = self.need(request, tokens)
        known = max(len(hits) * self.grain, back)
        if self._admission == "chunk" and known:
            ask = self._count(min(tokens, known + self._chunk)) * self.grain
        held = int((self._pool.refs[hits] > 0).sum()) if len(hits) else 0
        need = ask - held * self.grain
        # Admission looks at what is known now, but a life that can't ever fit would preempt
        # itself for ever, so it is told at once.
        most = max(ask, self._count(request.life) * self.grain)
        free, admissible = self.free, self.admissible
        if most > self.usable:
            return Verdict(NEVER, most, free, admissible)
        return Verdict(ADMITTED if need <= admissible else CAPACITY, need, free, admissible)

    def _own(self, request: Request, tokens: int) -> int:
        """Blocks of its prompt and the longest output."""
        return self._count(max(tokens, request.prompt_len + request.limit - 1))

    def _for_samples(self, request: Request, tokens: int) -> int:
        """Blocks that its further samples will need: a copy of the prompt's last block if it is
        full in part, and the output. For as many of them as the pool can ever hold beside it."""
        if request.samples == 1 or request.limit == 1 or tokens > request.prompt_len:
            return 0
        own = self._own(request, tokens)
        each = own - request.prompt_len // self.grain
        beside = max(0, (self._pool.usable_blocks - own) // each)
        return each * min(request.samples - 1, beside)

    def _keep_promise(self, request_id: int, blocks: int) -> None:
        """This many of the blocks promised to its samples have gone to one of them."""
        self._promised[request_id] -= blocks
        if not self._promised[request_id]:
            del self._promised[request_id]

    def _give_up_promise(self, request_id: int, line: int) -> None:
        """Its samples have begun, or wait in the queue: what is left is nobody's."""
        left = self._promised.pop(request_id, 0)
        if left:
            freed = self._pool.drop(self._cut(line, left))
            if not self._shares:
                self._rows.free(freed)
            self._forget(freed)

    def _cut(self, line: int, count: int) -> np.ndarray:
        """Its last blocks, unwritten, are not its own any more."""
        ids = self._ids(line)[-count:]
        self._blocks[line] -= count
        self._room[line] -= count * self.grain
        return ids

    def _hits(self, request: Request, tokens: int) -> np.ndarray:
        """Ids of the leading full blocks found in memory. One token at least is computed, for
        its logits are wanted."""
        if self._prefixes is None:
            return _NONE
        return self._prefixes.hits(request, (tokens - 1) // self.grain)

    def _register_fresh(self) -> None:
        """Blocks filled by the step that is about to be computed can be found from now on."""
        for request_id, first, last in self._fresh:
            if request_id not in self._requests:
                continue  # preempted in this very step: never computed
            starts = self.table.array[self.table.row(request_id), first:last]
            assert self._prefixes is not None, "only a sharing pool notes what is fresh"
            self._prefixes.register(request_id, first, starts // self.grain)
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
        if not offset:
            return 0
        block = self.table.array[line, index] // self.grain
        return offset if self._pool.refs[block] > 1 else 0

    def _open(self, request: Request) -> int:
        line = self.table.open(request.id)
        if line >= len(self._blocks):
            self._lengthen()
        self._requests[request.id] = request
        self._id[line] = request.id
        if self._prefixes is not None:
            self._prefixes.open(request)
        return line

    def _lengthen(self) -> None:
        """As many lines as the table has. By line: whose it is, blocks held, and slots in them
        that are not written yet, as arrays and, for one line at a time, as views that give Python's
        integers.
        """
        more = np.zeros(len(self.table.array) - len(self._blocks), np.int64)
        self._id = np.concatenate([self._id, more])
        self._blocks = np.concatenate([self._blocks, more])
        self._room = np.concatenate([self._room, more])
        self._blocks_of, self._room_of = self._blocks.data, self._room.data

    def _take(self, line: int, count: int) -> None:
        if count > 0:
            self._hold(line, self._take_ids(count))

    def _take_ids(self, count: int) -> np.ndarray:
        ids = self._pool.take(count)
        assert ids is not None, f"{count} free blocks were promised"
        self._forget_evicted(ids)
        return ids

    def _hold(self, line: int, ids: np.ndarray) -> None:
        held, count = self._blocks_of[line], len(ids)
        if not self._shares:
            self._rows.hold(ids, self._id[line])
        self.table.widen(held + count)
        self.table.array[line, held : held + count] = ids * self.grain
        self._blocks_of[line] = held + count
        self._room_of[line] += count * self.grain

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
        return self._blocks_of[line] * self.grain - self._room_of[line]

    def _count(self, slots: int) -> int:
        return -(-slots // self.grain)

    def _ids(self, line: int) -> np.ndarray:
        """Block ids in logical order, int64 [blocks]."""
        starts = self.table.array[line, : self._blocks_of[line]]
        return np.floor_divide(starts, self.grain, dtype=np.int64)

    @property
    def _shares(self) -> bool:
        """Can a block have several holders?"""
        return self._forked or self._prefixes is not None

    def _holders(self) -> tuple[np.ndarray, np.ndarray]:
        """(ids, owners) of all blocks in all tables, those of the oldest request last."""
        lines = self.table.rows(reversed(self._requests))
        counts = self._blocks[lines]
        return self._ids_from(lines, np.zeros_like(lines), counts), self._id[lines].repeat(counts)

    def _ids_at(self, lines: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Ids of the blocks at these places of these lines of the table."""
        return self.table.array[lines, index] // self.grain

    def _ids_from(self, lines: np.ndarray, first: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Ids of `counts` [n] blocks of each line [n], from index `first` [n] on, in one array."""
        before = counts.cumsum() - counts
        index = np.arange(counts.sum()) + (first - before).repeat(counts)
        return self._ids_at(lines.repeat(counts), index)

    def _note_filled(self, lines: np.ndarray) -> None:
        """The last block that each of these lines has written to is full now."""
        full = (self._blocks[lines] - self._room[lines] // self.grain).tolist()
        for request_id, last in zip(self._id[lines].tolist(), full, strict=True):
            self._fresh.append((request_id, last - 1, last))

    def _returnable(self) -> int:
        """Slots in pages without a block in use: what the device could have back."""
        whole = self._pool.count // self._page_blocks * self._page_blocks
        pages = self._pool.refs[:whole].reshape(-1, self._page_blocks)
        return int((~pages.any(axis=1)).sum()) * self._page_blocks * self.grain
