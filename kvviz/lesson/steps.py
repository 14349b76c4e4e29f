"""The eight steps: a paragraph, an action, and what carries it out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kvviz.lesson import cures, holes
from kvviz.lesson.pool import Bench
from kvviz.lesson.shown import Shown

END = (
    "So that is why a request is refused with half of the memory free: it needs its slots in one "
    "piece, the free ones lie in holes between requests that still run, and no hole is long "
    "enough. Moving what lives makes one hole of many, and costs copies. Blocks need no "
    "one piece at all, and cost a tail a request and a table."
)


@dataclass(frozen=True)
class Step:
    """words: Markdown. choices: what the action can be done with, the usual one first."""

    title: str
    words: str
    action: str
    act: Callable[[Bench, str], Shown]
    choice: str = ""
    choices: tuple[str, ...] = ()


STEPS: tuple[Step, ...] = (
    Step(
        "One slot, and a full pool",
        "A language model writes one token, a piece of a word, at a time, and looks back at all "
        "those before it. So as not to work them out again, it keeps two rows of numbers for each, "
        "its key and its value (K and V), in every layer: the **KV cache**. The room for one token "
        "is a **slot**. A server sets a pool of slots aside once and lends it to requests. A plain "
        "cache lends each request **one piece**, for then token *i* is simply at *start + i*.",
        "Fill the pool",
        holes.fill,
    ),
    Step(
        "Requests finish in any order",
        "An answer may take ten tokens or a thousand, so requests do not leave in the order in "
        "which they came. When one ends, its slots are free again. Its neighbours stay where they "
        "are: they are still being read and written there.",
        "Let a, c, e and g finish",
        holes.finish,
    ),
    Step(
        "See the holes",
        "A run of free slots between two neighbours is a **hole**. Half of the pool is free now, "
        "but no two holes touch. How bad is that? **External fragmentation** says which share of "
        "the free slots lies outside the largest hole: *1 - max h / F*.",
        "Measure the holes",
        holes.see,
    ),
    Step(
        "A request is refused although memory is free",
        "Request i arrives and needs 2,048 slots, prompt and answer together. Half of the pool is "
        "free, twice as much as it needs. But it needs them in one piece, and the longest free "
        "piece has 1,024. Lack of memory would be one thing (`capacity`); this is another "
        "(`fragmented`): enough is free, and there is no place for it.",
        "Ask for 2,048",
        holes.arrive,
    ),
    Step(
        "What a heap does with it",
        "The problem is as old as operating systems. `malloc` also lends memory in one piece, "
        "searches its holes by first or best fit, and merges (**coalesces**) free neighbours. "
        "Knuth's **fifty-percent rule** expects about half as many holes as live regions. Linux "
        "counts free pieces in `/proc/buddyinfo`, and when it needs a large one it **compacts**.",
        "Read it as a heap, and free b",
        holes.heap,
    ),
    Step(
        "Compact: move what lives",
        "Copy the live regions together and the holes become one. A **full slide** moves all of "
        "them down. **Fewest slots** looks for the cheapest moves that open a hole of 2,048. "
        "Either way all layers' K and V are copied while the requests wait.",
        "Compact and admit i",
        cures.compact,
        "Moves",
        tuple(cures.WAYS),
    ),
    Step(
        "Page it: any free block will do",
        "Paging cuts the pool into **blocks** of 16 slots. A request has a **block table**: which "
        "block holds its first 16 tokens, which one the next. So its blocks may lie anywhere. "
        "Nothing needs one piece, so no free block is out of reach.",
        "Serve the same sequence in blocks",
        cures.page,
        "a to h wrote",
        cures.TURNS,
    ),
    Step(
        "What paging costs",
        "It is not free. The last block of a request is seldom full: its rest is a **tail** that "
        "nobody else can use, up to *B - 1* slots. Every block needs an entry in a table, and "
        "every read looks it up. Small blocks have short tails and long tables.",
        "One more token for every request",
        cures.costs,
        "Slots in a block",
        cures.BLOCKS,
    ),
)
