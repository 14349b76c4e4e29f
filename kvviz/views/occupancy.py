"""Where the slots are, what a layout spends on itself, and whether the books balance."""

from __future__ import annotations

from kvviz import metrics
from kvviz.records import Snapshot
from kvviz.views.number import MiB, Number, Question, absent, mebibytes, share, slots
from kvviz.views.theme import number

PAPER = "PagedAttention, SOSP '23, fig. 2"
# What a layout may count: label, unit, what it is
EXTRAS = {
    "rounding_loss": ("rounding loss", slots, "held beyond what was asked for, by rounding"),
    "shared_saved": ("saved by sharing", slots, "slots that further holders did not need"),
    "tail": ("block tails", slots, "the unwritten rest of the blocks that are held"),
    "returnable": (
        "returnable",
        slots,
        "free slots in pages without a block in use: what the device could have back",
    ),
    "cached_blocks": ("cached blocks", number, "free, but kept for a possible second use"),
    "mapped_pages": ("mapped pages", number, "physical pages mapped now"),
    "mapped_unused": ("pages kept mapped", number, "mapped, and waiting for the next request"),
    "resident_bytes": ("resident memory", mebibytes, "physical memory behind the mapped pages"),
}


def occupancy(q: Question) -> list[Number]:
    """Shares of the pool: slots and blocks in use, and both breakdowns' parts."""
    s = q.snapshot
    return [*_usage(s), *_textbook(s), *_paper(s, q.ask)]


def costs(q: Question) -> list[Number]:
    """What the layout pays, and the check that nothing was lost or counted twice."""
    return [_tables(q), _moves(q), _books(q), *_counted(q)]


def _usage(s: Snapshot) -> list[Number]:
    found = metrics.usage(s)
    slot_usage = share(
        "slot usage",
        "used slots / slots",
        ("slots written", found.used_slots),
        ("slots in the pool", found.slots),
        "slot by slot, from the map",
    )
    name, formula, source = "block usage", "used blocks / blocks", "as vLLM's kv_cache_usage_perc"
    if found.blocks is None or found.used_blocks is None:
        because = "this pool hands out regions, no blocks"
        return [slot_usage, absent(name, formula, source, because)]
    if not found.blocks:
        return [slot_usage, absent(name, formula, source, "no whole block fits in the pool")]
    blocks = share(
        name,
        formula,
        ("blocks taken", found.used_blocks),
        ("blocks", found.blocks),
        source,
        "Half-empty blocks count in full: read it beside slot usage.",
    )
    return [slot_usage, blocks]


def _textbook(s: Snapshot) -> list[Number]:
    parts = metrics.textbook_breakdown(s)
    held = int(s.seq_held.sum())
    name, formula = "internal waste, textbook", "(reserved - written) / reserved"
    if not held:
        return [absent(name, formula, "textbook", "nothing is reserved")]
    return [
        share(
            name,
            formula,
            ("reserved and not written", parts.internal),
            ("slots reserved", held),
            "textbook",
            f"({number(held)} - {number(parts.written)}): over-reservation, rounding and block "
            "tails alike.",
        )
    ]


def _paper(s: Snapshot, ask: int | None) -> list[Number]:
    r = ask or 1
    parts = metrics.paper_breakdown(s, r)
    outside = "of use to no whole block" if s.paged else f"in holes below r = {number(r)}"
    if s.single:
        outside = f"in buffers below r = {number(r)}"
    rows = (
        ("token states", parts.written, "slots written"),
        ("reservation", parts.reserved, "held now, and this request will write them"),
        ("internal", parts.internal, "held, and this request will never write them"),
        ("external and others", parts.external, f"free slots {outside}"),
    )
    return [
        share(name, f"{name} / slots", (what, count), ("slots in the pool", parts.total), PAPER)
        for name, count, what in rows
    ]


def _tables(q: Question) -> Number:
    s = q.snapshot
    name, formula, source = "block tables", "entries x bytes an entry", "counted"
    found = metrics.block_table_bytes(s)
    if found is None:
        return absent(name, formula, source, "one region a request needs no block table")
    entry = metrics.TABLE_ENTRY_BYTES
    pool = s.capacity * s.slot_bytes
    whole = q.extras.get("table_bytes")
    note = "" if whole is None else f"The whole array takes {mebibytes(whole)}."
    return Number(
        name,
        mebibytes(found),
        f"{formula} = {number(found // entry)} x {entry}",
        f"bytes of the entries in use: {number(found)}",
        f"bytes of the pool: {number(pool)} ({found / pool:.4%})",
        source,
        note,
    )


def _moves(q: Question) -> Number:
    s = q.snapshot
    c = s.counters
    name, formula, source = "moved so far", "slots moved x bytes a slot", "measured"
    if s.paged and not c.slots_moved:
        return absent(name, formula, source, "a block stays where it is")
    cost = c.slots_moved * s.slot_bytes
    spent = f"{c.move_seconds * 1e3:,.1f} ms"
    return Number(
        name,
        f"{number(c.slots_moved)} in {spent}",
        f"{formula} = {number(c.slots_moved)} x {number(s.slot_bytes)} = {cost / MiB:,.1f} MiB",
        f"slots moved: {number(c.slots_moved)}",
        f"time spent on it: {spent}",
        source,
        "Read and written: the traffic on the device is twice that.",
        "measured",
    )


def _books(q: Question) -> Number:
    s = q.snapshot
    cached = int(q.extras.get("cached_blocks", 0)) * s.grain
    found = metrics.balance_of(s, cached)
    parts = f"{number(found.used)} + {number(found.free)}"
    formula = "used + free = total"
    for word, count in (("cached", found.cached), ("never handed out", found.null)):
        if count:
            parts = f"{parts} + {number(count)}"
            formula = formula.replace(" =", f" + {word} =")
    if found.balanced:
        value, note = "balanced", "Nothing is lost, nothing counted twice."
    else:
        word = "lost" if found.difference < 0 else "too many"
        value = f"{found.difference:+,} {word}"
        note = "The books do not balance: what is held and what is free do not make the pool."
    return Number(
        "books",
        value,
        f"{formula}: {parts} = {number(found.counted)}",
        f"counted: {number(found.counted)}",
        f"slots in the pool: {number(found.total)}",
        "held by the requests, beside the layout's holes",
        note,
    )


def _counted(q: Question) -> list[Number]:
    """What this layout counts and others don't."""
    return [
        Number(label, text(q.extras[key]), what, f"{label}: {text(q.extras[key])}", "",
               "counted by the layout")
        for key, (label, text, what) in EXTRAS.items()
        if key in q.extras
    ]  # fmt: skip
