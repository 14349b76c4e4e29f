"""The tables of a recording: their columns, and the names that the manifest gives them.

Every recorded step has one row in `clock` and one in each lane's `steps`, which says how many
rows belong to it in the lane's other tables, in order. `rows` holds the rows of the pool that
are new since the step before (all of them in every `KEY`-th step) and `sequences` the running
requests; in both, `used` is what was added since the step before. `queue` and `turned_away` are
written when they change: a count of -1 in `steps` means as before.
"""

from __future__ import annotations

from dataclasses import fields

from kvviz.engine.recorder import FIELDS
from kvviz.records import REFUSALS, Counters, Event, Verdict

FORMAT = 1  # raised when an older reader would misread a file
KEY = 64  # recorded steps from one that stands alone to the next

INT, LONG, REAL, FLAG, WORD = "int32", "int64", "float64", "bool", "string"

CLOCK = {"step": LONG, "compared": LONG, "equal": LONG, "drawn": LONG}
ROWS = {"start": INT, "size": INT, "used": INT, "owner": LONG, "refs": INT, "cached": INT}
SEQUENCES = {"id": LONG, "used": INT, "life": INT, "held": INT, "prompt": INT, "since": LONG}
QUEUE = {"id": LONG, "need": INT}
TURNED_AWAY = {"id": LONG}
COUNTS = ("rows", "sequences", "queue", "turned_away")
SCALARS = {
    "step": LONG, "seconds": REAL, "capacity": LONG, "grain": LONG, "paged": FLAG,
    "slot_bytes": LONG, "admissible": LONG,
}  # fmt: skip
LATER = {"single": FLAG}  # not in older files: a Snapshot's default holds there
CHECKS = ("checks_made", "checks_failed", "checked_step")
COUNTERS = {
    field.name: REAL if field.type == "float" else LONG
    for field in fields(Counters)
    if field.name != "refused"
}
HEAD = tuple(name for name in Verdict._fields if name != "kind")
STEPS = {
    **SCALARS,
    **LATER,
    **dict.fromkeys(COUNTS, LONG),
    "counts_cached": FLAG,
    "head": WORD,  # the kind of its verdict; empty: no head
    **{f"head.{name}": LONG for name in HEAD},
    **{f"counters.{name}": kind for name, kind in COUNTERS.items()},
    **{f"refused.{kind}": LONG for kind in REFUSALS},
    **dict.fromkeys(CHECKS, LONG),
}
EXTRA = "extra."  # what a layout counts itself: NaN where it was not counted
SERIES = dict.fromkeys(FIELDS, LONG)
EVENTS = {name: WORD if name in ("kind", "verdict", "text") else LONG for name in Event._fields}

LOOKS_NAME = "looks.parquet"  # not in older files: hue and pattern of each request
LOOKS = {"id": LONG, "look": INT}

LANE_TABLES = {
    "steps": STEPS, "rows": ROWS, "sequences": SEQUENCES, "queue": QUEUE,
    "turned_away": TURNED_AWAY, "series": SERIES, "events": EVENTS,
}  # fmt: skip


def tables_of(lanes: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """{path in the file: {column: kind}} of a recording with these lanes."""
    of_lanes = {
        f"{lane}/{table}.parquet": columns
        for lane in lanes
        for table, columns in LANE_TABLES.items()
    }
    return {"clock.parquet": CLOCK, **of_lanes}
