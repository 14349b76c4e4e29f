"""The classical numbers of fragmentation: indices at the size asked for, rules and bounds."""

from __future__ import annotations

import numpy as np

from kvviz import metrics
from kvviz.records import FRAGMENTED
from kvviz.views.number import Number, Question, absent, percent, slots
from kvviz.views.theme import number

ANY_BLOCK = "any free block will do: nothing here needs one piece"
NOTHING_WAITS = "no request waits, so there is no r"
LINUX = "Linux, mm/vmstat.c"
KNUTH = "Knuth, TAOCP 1, 2.5; Shore, CACM 20(11), 1977"
DENNING = "Denning, Computing Surveys 2(3), 1970"
ROBSON = "Robson, JACM 21(3), 1974, 491-499"


def indices(q: Question) -> list[Number]:
    """How usable the free memory is, for any request and for one of r slots."""
    return [_request(q), _external(q), _unusable(q), _fragmentation(q), _how_many(q)]


def rules(q: Question) -> list[Number]:
    """What theory says of memory handed out in pieces that can't move."""
    return [_holes(q), _fifty_percent(q), _unused_memory(q), _robson(q)]


def _request(q: Question) -> Number:
    name, formula, source = "next request, r", "slots the head of a queue asks for", "the scheduler"
    if q.ask is None:
        return absent(name, formula, source, NOTHING_WAITS)
    return Number(
        name,
        number(q.ask),
        f"{formula} = {number(q.ask)}",
        f"r: {slots(q.ask)}",
        f"slots in the pool: {number(q.snapshot.capacity)}",
        source,
        "the same for all lanes: of a head that is refused, else of the first in a queue",
    )


def _external(q: Question) -> Number:
    name, formula, source = "external fragmentation", "1 - max h / F", "textbook"
    s = q.snapshot
    if s.paged:
        return absent(name, formula, source, ANY_BLOCK)
    found = metrics.external_fragmentation(s.free, s.admissible)
    if found is None:
        return absent(name, formula, source, "nothing is free")
    return Number(
        name,
        percent(found),
        f"{formula} = 1 - {number(s.admissible)} / {number(s.free)}",
        f"max h, the largest hole: {number(s.admissible)}",
        f"F, free slots: {number(s.free)}",
        source,
        "0 when there is one hole",
    )


def _unusable(q: Question) -> Number:
    name, source = "unusable free space index", f"Gorman; {LINUX}"
    s, r = q.snapshot, q.ask
    formula = "(F - r * sum floor(h / r)) / F"
    if s.paged:
        formula = "(F - ceil(r / B) * B * how many fit) / F"
    if r is None:
        return absent(name, formula, source, NOTHING_WAITS)
    note = "0: all free memory serves requests of r; 1 when nothing is free, by definition"
    if s.free == 0:
        return Number(name, "1.000", formula, "free slots: 0", "F, free slots: 0", source, note)
    sizes, one = q.holes, np.array([r])
    fit = metrics.how_many_fit(sizes, s.block, s.free, one, single=s.single)
    taken = r if s.block is None else -(-r // s.block) * s.block
    value = float(metrics.unusable_curve(sizes, s.block, s.free, one, single=s.single, fit=fit)[0])
    count = int(fit[0])
    left, free = number(s.free - taken * count), number(s.free)
    return Number(
        name,
        f"{value:.3f}",
        f"{formula} = ({free} - {number(taken)} x {number(count)}) / {free}",
        f"free slots that no request of {number(r)} can use: {left}",
        f"F, free slots: {free}",
        source,
        note,
    )


def _fragmentation(q: Question) -> Number:
    name, formula, source = "fragmentation index", "1 - (1 + F / r) / H", f"{LINUX}, extfrag_index"
    s, r = q.snapshot, q.ask
    if s.paged:
        return absent(name, formula, source, ANY_BLOCK)
    if r is None:
        return absent(name, formula, source, NOTHING_WAITS)
    sizes = q.holes
    found = metrics.fragmentation(sizes, r)
    if found.value is None:
        return absent(name, formula, source, f"a hole of {number(s.admissible)} holds {number(r)}")
    count, free = len(sizes), number(s.free)
    clipped = "" if found.shown == found.value else f"{found.value:.3f}, shown clipped to [0, 1]. "
    why = "F >= r > max h" if found.kind == FRAGMENTED else "F < r, whatever the index says"
    filled = (
        f" = 1 - (1 + {free} / {number(r)}) / {number(count)}" if count else " = 0 without holes"
    )
    return Number(
        name,
        f"{found.kind}, {found.shown:.3f}",
        formula + filled,
        f"1 + F / r: {1 + s.free / r:,.3f}",
        f"H, holes: {number(count)}",
        source,
        f"{clipped}Class first: {found.kind}, for {why}. Toward 0 lack of memory, toward 1 "
        "fragmentation.",
    )


def _how_many(q: Question) -> Number:
    name, source = "requests of r that fit now", "free-vs-admissible"
    s, r = q.snapshot, q.ask
    formula = "floor(free blocks / ceil(r / B))" if s.paged else "sum floor(h / r)"
    if s.single:
        formula = "free buffers if r <= B, else 0"
    if r is None:
        return absent(name, formula, source, NOTHING_WAITS)
    fit = int(metrics.how_many_fit(q.holes, s.block, s.free, np.array([r]), single=s.single)[0])
    bound = int(metrics.bound_fit(s.free, np.array([r]))[0])
    filled = f" for r = {number(r)} = {number(fit)}"
    if s.block is not None and not s.single:
        filled = f" = floor({number(s.free // s.block)} / {number(-(-r // s.block))})"
    return Number(
        name,
        f"{number(fit)} of {number(bound)}",
        formula + filled,
        f"fit as the pool is: {number(fit)}",
        f"bound floor(F / r) = floor({number(s.free)} / {number(r)}): {number(bound)}",
        source,
    )


def _holes(q: Question) -> Number:
    pieces = metrics.buddyinfo(q.snapshot)
    orders = [int(k) for k in np.flatnonzero(pieces)]
    grain = q.snapshot.grain
    table = ", ".join(f"{number(pieces[k])} x {number(grain << k)}" for k in orders)
    sizes = q.holes
    free = int(sizes.sum())
    return Number(
        "free runs" if q.snapshot.paged else "holes",
        number(len(sizes)),
        "maximal runs of free slots",
        f"F, free slots: {number(free)}",
        f"H, runs: {number(len(sizes))}" + (f", mean {free / len(sizes):,.1f}" if free else ""),
        "as /proc/buddyinfo",
        f"in aligned pieces of 2^k: {table or 'none'}",
    )


def _fifty_percent(q: Question) -> Number:
    name, formula, source = "holes a live region", "H / N beside p / 2", KNUTH
    s, extras = q.snapshot, q.extras
    if s.paged:
        return absent(name, formula, source, ANY_BLOCK)
    found = metrics.fifty_percent(
        len(q.holes),
        s.columns.live,
        int(extras.get("allocations_with_remainder", 0)),
        int(extras.get("allocations", 0)),
    )
    if found.measured is None:
        return absent(name, formula, source, "no region is live")
    measured = f"H / N = {number(found.holes)} / {number(found.live)}"
    note = "A tendency in equilibrium, no law."
    if found.expected is None:
        value, rule = f"{found.measured:.2f}", "p / 2"
        note += " p / 2 is n/a because this layout counts no allocations."
    else:
        value = f"{found.measured:.2f}, rule {found.expected:.2f}"
        rule = (
            f"p / 2 = {number(extras['allocations_with_remainder'])} / "
            f"{number(extras['allocations'])} / 2"
        )
        note += " p: share of allocations that left a remainder."
    return Number(
        name,
        value,
        f"{measured} beside {rule}",
        f"H, holes: {number(found.holes)}",
        f"N, live regions: {number(found.live)}",
        source,
        note,
        "rule",
    )


def _unused_memory(q: Question) -> Number:
    name, formula, source = "unused memory", "k / (k + 2)", DENNING
    if q.snapshot.paged:
        return absent(name, formula, source, ANY_BLOCK)
    found = metrics.unused_memory(q.snapshot)
    if found is None:
        return absent(name, formula, source, "there is no hole, or no live region")
    k = found.mean_hole / found.mean_live
    return Number(
        name,
        f"{percent(found.measured)}, rule {percent(found.expected)}",
        f"F / pool beside {formula} = {k:,.3f} / {k + 2:,.3f}",
        f"k: mean hole {found.mean_hole:,.1f} / mean live region {found.mean_live:,.1f}",
        f"k + 2: {k + 2:,.3f}",
        source,
        "The rule supposes the fifty-percent rule with p = 1.",
        "rule",
    )


def _robson(q: Question) -> Number:
    name, source = "to be sure without moves", ROBSON
    formula = "N = M * (1 + log2(n) / 2) - n + 1"
    s = q.snapshot
    if s.paged:
        return absent(name, formula, source, f"{ANY_BLOCK}; paging needs 1 x and the tails")
    known = [q.ask or 0, *s.seq_held.tolist(), *s.waiting_need.tolist()]
    found = metrics.robson(s, max(known))
    if found is None:
        return absent(name, formula, source, "no region is live")
    log2 = found.largest.bit_length() - 1
    return Number(
        name,
        f"{number(found.slots)}, {found.times:.2f} x",
        f"{formula} = {number(found.live)} x (1 + {log2} / 2) - {number(found.largest)} + 1 = "
        f"{number(found.units)} units of {found.unit} slots",
        f"N: {slots(found.slots)}",
        f"M, the live set: {number(found.live)} units = {slots(found.live * found.unit)}",
        source,
        f"What no allocator can do with less, if requests go up to n = {number(found.largest)} "
        "units and nothing moves. Enough when all sizes are powers of two; else up to about "
        "twice that.",
        "rule",
    )
