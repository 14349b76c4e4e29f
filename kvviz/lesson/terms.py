"""The terms: what each number means, its formula and its source."""

from __future__ import annotations

from dataclasses import dataclass

from kvviz.views.classical import DENNING, KNUTH, LINUX, ROBSON
from kvviz.views.occupancy import PAPER


@dataclass(frozen=True)
class Term:
    """anchor: of its place on the page. formula: in letters, empty for a word. numbers: the names
    under which the pages show it."""

    name: str
    anchor: str
    formula: str
    says: str
    source: str = ""
    numbers: tuple[str, ...] = ()


SYMBOLS = (
    "F: free slots. h: sizes of the holes, H: how many there are. r: slots that a request asks "
    "for. T: tokens it will hold, prompt + output - 1 (the last sampled token is never written). "
    "B: slots in a block."
)

WORDS: tuple[Term, ...] = (
    Term(
        "slot",
        "slot",
        "b_tok = 2 * L * H_kv * d_h * s",
        "Room for one token's K and V in all layers: L layers, H_kv heads of d_h numbers of s "
        "bytes.",
    ),
    Term(
        "hole",
        "hole",
        "",
        "A run of free slots. Two that touch are one.",
        numbers=("holes", "free runs"),
    ),
    Term("block", "block", "", "B slots that are lent together; a block table puts them in order."),
    Term(
        "tail",
        "tail",
        "",
        "The rest of a request's last block: held, and not written.",
        numbers=("block tails",),
    ),
    Term(
        "verdict",
        "verdict",
        "",
        "`never`: r is larger than the pool. `capacity`: larger than F. `fragmented`: F would do, "
        "but no hole does. `queued`: it would fit, but stands behind one that does not. "
        "`admitted`: it got its slots.",
    ),
    Term(
        "compaction",
        "compaction",
        "cost = slots moved * b_tok",
        "Live regions are copied together, so that holes become one. Read and written: the traffic "
        "on the device is twice that. Full slide moves all down, fewest slots opens one hole.",
        numbers=("moved so far",),
    ),
    Term(
        "false refusal",
        "false-refusal",
        "first refusals as fragmented / first refusals of any kind",
        "A request that is refused although F would do. Each request counts once, by the verdict "
        "of its first refusal.",
        "counted by the engine",
        numbers=("false refusals",),
    ),
    Term(
        "running, waiting",
        "running",
        "",
        "Requests in this step's batch, and those that arrived and have no place yet.",
        "counted by the engine",
        numbers=("running",),
    ),
    Term(
        "tokens a second",
        "tokens-a-second",
        "tokens generated / seconds of the lane's own steps",
        "A lane's clock runs while its own step runs: the others don't slow it down.",
        "measured",
        numbers=("tokens/s",),
    ),
)

FORMULAS: tuple[Term, ...] = (
    Term(
        "free",
        "free",
        "F = sum h",
        "All slots in no request's hands. In a paged pool: free blocks * B.",
        "the map",
        numbers=("free",),
    ),
    Term(
        "next request",
        "next-request",
        "r",
        "The slots that the head of the queue asks for; the indices are taken at this size.",
        "the scheduler",
        numbers=("next request, r",),
    ),
    Term(
        "need",
        "need",
        "T, or ceil(T / B) * B in blocks",
        "Slots that a request takes in the end, or what it reserves at admission.",
    ),
    Term(
        "admissible now",
        "admissible",
        "max h, or free blocks * B",
        "The largest request that finds a place without a move. Read it beside F.",
        numbers=("largest admissible",),
    ),
    Term(
        "how many of size r fit",
        "how-many-fit",
        "sum floor(h / r), or floor(free blocks / ceil(r / B)); at most floor(F / r)",
        "Free against admissible, over the size asked for.",
        numbers=("requests of r that fit now",),
    ),
    Term(
        "external fragmentation",
        "external-fragmentation",
        "1 - max h / F",
        "The share of the free slots that the largest request can't reach. 0 with one hole; n/a "
        "when nothing is free.",
        "textbook",
        numbers=("external fragmentation",),
    ),
    Term(
        "unusable free space index",
        "unusable-index",
        "(F - r * sum floor(h / r)) / F",
        "0: all free memory serves requests of r. 1 when nothing is free.",
        f"Gorman; {LINUX}",
        numbers=("unusable free space index",),
    ),
    Term(
        "fragmentation index",
        "fragmentation-index",
        "1 - (1 + F / r) / H",
        "Toward 0 lack of memory, toward 1 fragmentation; n/a when some hole holds r, 0 without "
        "holes, shown clipped to [0, 1]. Classify first: F < r is lack of memory, whatever the "
        "index says.",
        f"{LINUX}, extfrag_index",
        numbers=("fragmentation index",),
    ),
    Term(
        "fifty-percent rule",
        "fifty-percent-rule",
        "H / N beside p / 2",
        "N live regions; p: the share of allocations that left a remainder. A tendency in "
        "equilibrium, no law.",
        KNUTH,
        numbers=("holes a live region",),
    ),
    Term(
        "unused memory rule",
        "unused-memory-rule",
        "k / (k + 2)",
        "k: mean hole / mean live region. The share of memory that lies in holes, if the "
        "fifty-percent rule holds with p = 1.",
        DENNING,
        numbers=("unused memory",),
    ),
    Term(
        "to be sure without moves",
        "robson-bound",
        "N = M * (1 + log2(n) / 2) - n + 1",
        "What must be there so that nothing is ever refused: M live, requests up to n, both in "
        "units of the smallest. For M = 768 and n = 128 units of 16: 53,264 slots, 4.33 times the "
        "live set. Paging needs the live set and the tails.",
        ROBSON,
        numbers=("to be sure without moves",),
    ),
    Term(
        "internal waste, textbook",
        "internal-waste",
        "(reserved - written) / reserved",
        "Over-reservation, rounding and block tails alike.",
        "textbook",
        numbers=("internal waste, textbook",),
    ),
    Term(
        "breakdown",
        "breakdown",
        "token states, reservation, internal, external and others",
        "Written; held and still to be written by this request; held and never to be written; "
        "free, and of no use to a request of r.",
        PAPER,
        numbers=("token states", "reservation", "internal", "external and others"),
    ),
    Term(
        "slot usage and block usage",
        "usage",
        "used slots / slots, used blocks / blocks",
        "Half-empty blocks count in full in the second: 100 sequences of 17 tokens in 300 blocks "
        "of 16 are 66.7 % of the blocks and 35.4 % of the slots.",
        "counted, and as vLLM's kv_cache_usage_perc",
        numbers=("slot usage", "block usage"),
    ),
    Term(
        "free pieces by order",
        "buddyinfo",
        "n_k pieces of 2^k",
        "Each hole cut into the largest pieces that start at a multiple of their own size.",
        "as /proc/buddyinfo",
    ),
    Term(
        "block tables",
        "block-tables",
        "entries * 4 bytes",
        "What the order of the blocks costs: an entry for each block that a request holds.",
        "counted",
        numbers=("block tables",),
    ),
    Term(
        "books",
        "books",
        "used + free (+ cached + never handed out) = slots in the pool",
        "Counted twice and compared: what the requests hold, and the layout's own holes.",
        "counted",
        numbers=("books",),
    ),
    Term(
        "rounding and sharing",
        "rounding-and-sharing",
        "held - asked for; holders' slots - slots held",
        "What a buddy system hands out beyond the size asked for; what blocks save that several "
        "requests hold; free blocks that keep a prefix for a second use.",
        "counted by the layout",
        numbers=("rounding loss", "saved by sharing", "cached blocks"),
    ),
    Term(
        "mapped memory",
        "mapped-memory",
        "pages mapped * bytes a page",
        "A virtually contiguous cache maps physical pages under a range of addresses as it grows; "
        "pages kept mapped wait for the next request; returnable ones could go back to the device.",
        "counted by the layout; vAttention, ASPLOS '25",
        numbers=("mapped pages", "pages kept mapped", "resident memory", "returnable"),
    ),
)

# The place of each number that a page shows
ANCHORS = {name: term.anchor for term in (*WORDS, *FORMULAS) for name in term.numbers}
