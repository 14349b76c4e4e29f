"""A load through several lanes, each the fastest exact way, and the report of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from kvviz.records import Event, Snapshot
from kvviz.replay.lanes import LaneSpec
from kvviz.replay.load import Load
from kvviz.replay.plain import PlainLane
from kvviz.replay.result import LaneResult, lane_report
from kvviz.replay.support import why_plain
from kvviz.report import aligned


class Progress(NamedTuple):
    """Requests through, of all lanes together; `seconds_left` is None before anything is."""

    done: int
    of: int
    seconds_left: float | None
    lane: str


# Told now and then; answers whether to go on.
Watch = Callable[[Progress], bool]


class Lane(Protocol):
    """What `FastLane` and `PlainLane` have in common."""

    seconds: float

    @property
    def step(self) -> int: ...

    def serve(self, until: int | None = None, watch: Callable[[int], bool] | None = None) -> bool:
        """Go on to a step, or to the end; False when `watch` said no."""

    def result(self) -> LaneResult: ...

    def events(self) -> list[Event]: ...

    def snapshot(self, slot_bytes: int) -> Snapshot: ...


def open_lane(
    load: Load, spec: LaneSpec, slot_bytes: int, *, plain: bool = False, for_map: bool = False
) -> Lane:
    """From event to event where that is exact, else (or with `plain`) step by step. Only a lane
    opened `for_map` can be asked for a snapshot."""
    why = "asked for" if plain else why_plain(spec.layout, spec.config)
    if why:
        return PlainLane(load, spec.config, spec.layout, slot_bytes, why=why)
    from kvviz.replay.fast import FastLane  # loads numba

    return FastLane(load, spec.config, spec.layout, ids=for_map)


def replay(
    load: Load,
    specs: Iterable[LaneSpec],
    slot_bytes: int,
    watch: Watch | None = None,
    *,
    plain: bool = False,
) -> dict[str, LaneResult]:
    """Every lane to its end, one after the other; those finished before `watch` said no."""
    specs = list(specs)
    results: dict[str, LaneResult] = {}
    began = time.perf_counter()
    of = load.rows * len(specs)
    for at, spec in enumerate(specs):

        def told(done: int, before: int = at * load.rows, name: str = spec.name) -> bool:
            done += before
            spent = time.perf_counter() - began
            left = spent / done * (of - done) if done else None
            return watch is None or watch(Progress(done, of, left, name))

        lane = open_lane(load, spec, slot_bytes, plain=plain)
        if not told(0) or not lane.serve(watch=told):
            break
        results[spec.name] = lane.result()
    return results


def snapshot_at(
    load: Load,
    spec: LaneSpec,
    slot_bytes: int,
    step: int,
    watch: Callable[[int], bool] | None = None,
) -> Snapshot:
    """The memory after `step` steps, found by serving that far anew; `watch` gets the number of
    requests done, and False from it stops there."""
    lane = open_lane(load, spec, slot_bytes, for_map=True)
    lane.serve(until=max(step, 1), watch=watch)
    return lane.snapshot(slot_bytes)


def replay_report(
    load: Load, specs: Iterable[LaneSpec], results: dict[str, LaneResult], slot_bytes: int
) -> dict[str, Any]:
    """Everything about a replay, as JSON."""
    by_name = {spec.name: spec for spec in specs}
    return {
        "trace": load.about,
        "notes": list(load.notes),
        "step_ms": load.step_ms,
        "slot_bytes": slot_bytes,
        "dry": True,
        "lanes": {
            name: {
                **lane_report(result, load),
                "lane": by_name[name].lane,
                "slots": result.capacity,
                "config": by_name[name].config.as_dict(),
            }
            for name, result in results.items()
        },
        "seconds": round(sum(result.seconds for result in results.values()), 4),
    }


ROWS: tuple[tuple[str, Callable[[dict[str, Any]], Any]], ...] = (
    ("admitted", lambda r: r["admitted"]),
    ("finished", lambda r: r["finished"]),
    ("refused: fragmented (false refusals)", lambda r: r["refused"]["fragmented"]),
    ("refused: capacity", lambda r: r["refused"]["capacity"]),
    ("refused: queued", lambda r: r["refused"]["queued"]),
    ("refused: never", lambda r: r["refused"]["never"]),
    ("turned away", lambda r: r["turned_away"]),
    ("preempted", lambda r: r["preempted"]),
    ("recomputed tokens", lambda r: r["recomputed_tokens"]),
    ("prompt tokens found in memory", lambda r: r["cached_tokens"]),
    ("slots moved", lambda r: r["slots_moved"]),
    ("running, mean", lambda r: r["running"]["mean"]),
    ("running, p95", lambda r: r["running"]["p95"]),
    ("waited, p50 (s)", lambda r: r["waited"]["p50_s"]),
    ("waited, p95 (s)", lambda r: r["waited"]["p95_s"]),
    ("waited, p99 (s)", lambda r: r["waited"]["p99_s"]),
    ("free slots, mean", lambda r: r["free"]["mean"]),
    ("largest admissible, mean", lambda r: r["largest_admissible"]["mean"]),
    ("slot usage, mean", lambda r: r["slot_usage"]["mean"]),
    ("waste, textbook: internal", lambda r: r["waste"]["textbook"]["internal"]),
    ("waste, textbook: external", lambda r: r["waste"]["textbook"]["external"]),
    ("waste, paper: reservation", lambda r: r["waste"]["paper"]["reservation"]),
    ("waste, paper: internal", lambda r: r["waste"]["paper"]["internal"]),
    ("waste, paper: external", lambda r: r["waste"]["paper"]["external"]),
    ("steps", lambda r: r["steps"]),
    ("way", lambda r: r["way"]),
    ("seconds (measured)", lambda r: r["seconds"]),
)


def table(report: dict[str, Any]) -> str:
    """The report as aligned text, a column a lane."""
    lanes = report["lanes"]
    rows = [("", *lanes), *((label, *(_cell(read(r)) for r in lanes.values()))
                            for label, read in ROWS)]  # fmt: skip
    lines = [line.rstrip() for line in aligned(rows)]
    trace = report["trace"]
    lines += [
        "",
        f"dry: {trace['rows']:,} requests ({trace['format']}), {trace['set_aside']:,} rows set "
        f"aside; steps of {report['step_ms']:g} ms are assumed",
        *report["notes"],
        *(f"{n}: step by step, for {r['why']} is not done by events"
          for n, r in lanes.items() if r["why"] and r["why"] != "asked for"),
    ]  # fmt: skip
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or "n/a"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}".rstrip("0").rstrip(".")
