"""Steps 1 to 5: how a pool fills, how finished requests leave holes, and what that means."""

from __future__ import annotations

from kvviz.caches.layout import extras_of
from kvviz.config import FITS
from kvviz.lesson.pool import Bench
from kvviz.lesson.sequence import ASK, GONE, LATE, NAMES, SIZE, filled, holed
from kvviz.lesson.shown import Shown, Table, mib
from kvviz.lesson.terms import ANCHORS
from kvviz.metrics import buddyinfo
from kvviz.views.classical import indices, rules
from kvviz.views.number import Number, Question


def fill(bench: Bench, _choice: str) -> Shown:
    """The pool empty, then full; what one slot costs, from the tensors."""
    with filled(bench) as full, bench.pool() as empty:
        s, data = bench.shape, full.store.data
        size = data.element_size()
        per_slot = data.nbytes // full.store.slots
        layers, heads, width = s.num_hidden_layers, s.num_key_value_heads, s.head_dim
        return Shown(
            (empty.scene("empty"), full.scene("full")),
            (
                f"One slot: 2 x L x H_kv x d_h x s = 2 x {layers} x {heads} x {width} x {size} = "
                f"{s.slot_bytes(size):,} bytes.",
                f"The tensors say the same: {data.nbytes:,} bytes / {full.store.slots:,} slots = "
                f"{per_slot:,} bytes. The pool is {mib(data.nbytes)}.",
                f"{len(NAMES)} requests of {SIZE:,} slots fill it: {full.layout.free:,} are free.",
            ),
            full.check(),
        )


def finish(bench: Bench, _choice: str) -> Shown:
    """a, c, e and g finish."""
    with filled(bench) as pool:
        before = pool.scene("before")
        pool.release(*GONE)
        free = pool.layout.free
        return Shown(
            (before, pool.scene("after")),
            (
                f"{', '.join(GONE)} are gone: {free:,} of {pool.layout.capacity:,} slots are free, "
                f"{mib(free * pool.slot_bytes)}.",
                f"The largest hole has {pool.layout.admissible:,}. The freed slots were filled "
                "with NaN, so that a stray read could not go unnoticed.",
            ),
            pool.check(),
        )


def see(bench: Bench, _choice: str) -> Shown:
    """The holes, counted."""
    with holed(bench) as pool:
        scene = pool.scene("now")
        q = Question(scene.snapshot, None, extras_of(pool.layout))
        external = _named(indices(q), "external fragmentation")
        return Shown(
            (scene,),
            (
                f"F = {pool.layout.free:,} free slots in {len(q.holes)} holes of "
                f"{pool.layout.admissible:,}.",
                f"External fragmentation: {external.formula} = "
                f"{1 - pool.layout.admissible / pool.layout.free:.2f}. The largest request that "
                f"fits can use {pool.layout.admissible:,} of them.",
            ),
            pool.check(),
            holes=True,
        )


def arrive(bench: Bench, _choice: str) -> Shown:
    """A request of 2,048 is refused, by every fit."""
    with holed(bench) as pool:
        scene = pool.scene(f"{LATE} refused")
        verdict = pool.ask(ASK)
        told = []
        for fit in FITS:
            pool.set({"contiguous.fit": fit})
            told.append(f"{fit} fit: {pool.ask(ASK).kind}")
        numbers = indices(Question(scene.snapshot, ASK, extras_of(pool.layout)))
        return Shown(
            (scene,),
            (
                f"Request {LATE} needs {verdict.need:,}; {verdict.free:,} are free, but the "
                f"largest hole is {verdict.largest:,}: {verdict.kind}.",
                f"The choice of a hole does not help: {', '.join(told)}.",
                f"{verdict.free - verdict.need:,} slots would be left over, if only the free ones "
                "lay together.",
            ),
            pool.check(),
            ask=ASK,
            table=_table([n for n in numbers if n.kind != "absent"]),
        )


def heap(bench: Bench, _choice: str) -> Shown:
    """The same pool in the words of an operating system's heap; then b goes too."""
    with holed(bench) as pool:
        scene = pool.scene("as it was")
        q = Question(scene.snapshot, ASK, extras_of(pool.layout))
        numbers = rules(q)
        orders = buddyinfo(scene.snapshot)
        line = " ".join(str(count) for count in orders)
        found = ", ".join(
            f"order {k}: {n} free pieces of {1 << k:,}" for k, n in enumerate(orders) if n
        )
        pool.release("b")
        verdict = pool.ask(ASK)
        return Shown(
            (scene, pool.scene("b gone")),
            (
                f"First fit, as malloc does: refused at {ASK:,}, although {q.snapshot.free:,} are "
                "free.",
                f"A line of /proc/buddyinfo would read: {line} ({found}).",
                f"Coalescing: once b goes too, its neighbours a and c merge with it into one hole "
                f"of {verdict.largest:,}, and {ASK:,} are {verdict.kind}. A heap must wait for "
                "that, or compact. (This is a look aside: b stays in the next step.)",
            ),
            pool.check(),
            table=_table(numbers),
        )


def _named(numbers: list[Number], name: str) -> Number:
    return next(n for n in numbers if n.name == name)


def _table(numbers: list[Number]) -> Table:
    return {
        "number": [f"[{n.name}](terms#{ANCHORS[n.name]})" for n in numbers],
        "value": [n.value for n in numbers],
        "how": [n.formula for n in numbers],
        "source": [n.source for n in numbers],
        "note": [n.note for n in numbers],
    }
