"""Numbers that follow from a Snapshot, a series or two integers. Pure; formulas with their
source. `None` is "not applicable", never 0.
"""

from kvviz.metrics.books import Books, balance, balance_of, usage_gauge
from kvviz.metrics.breakdowns import (
    TABLE_ENTRY_BYTES,
    Breakdown,
    Usage,
    block_table_bytes,
    never_used,
    paper_breakdown,
    textbook_breakdown,
    usage,
)
from kvviz.metrics.holes import (
    bound_fit,
    buddyinfo,
    hole_histogram,
    hole_runs,
    holes,
    how_many_fit,
)
from kvviz.metrics.indices import (
    FITS,
    Fragmentation,
    external_fragmentation,
    fragmentation,
    fragmentation_index,
    unusable_curve,
    unusable_index,
)
from kvviz.metrics.over_time import TimeWeighted, summary, time_weighted
from kvviz.metrics.rules import (
    FiftyPercent,
    Robson,
    UnusedMemory,
    fifty_percent,
    robson,
    robson_bound,
    unused_memory,
    unused_share,
)

__all__ = [
    "FITS",
    "TABLE_ENTRY_BYTES",
    "Books",
    "Breakdown",
    "FiftyPercent",
    "Fragmentation",
    "Robson",
    "TimeWeighted",
    "UnusedMemory",
    "Usage",
    "balance",
    "balance_of",
    "block_table_bytes",
    "bound_fit",
    "buddyinfo",
    "external_fragmentation",
    "fifty_percent",
    "fragmentation",
    "fragmentation_index",
    "hole_histogram",
    "hole_runs",
    "holes",
    "how_many_fit",
    "never_used",
    "paper_breakdown",
    "robson",
    "robson_bound",
    "summary",
    "textbook_breakdown",
    "time_weighted",
    "unusable_curve",
    "unusable_index",
    "unused_memory",
    "unused_share",
    "usage",
    "usage_gauge",
]
