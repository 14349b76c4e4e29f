"""What was checked of a run and how it is served, as small labels: (label, tone, help)."""

from __future__ import annotations

from kvviz.live.published import Published
from kvviz.views.theme import number
from kvviz.workloads.stream import source_of


def chips(published: Published) -> list[dict[str, str]]:
    """What was checked, as (label, tone, help)."""
    if not published.lanes:
        return []
    rows = [_kind(published)]
    if published.device:
        rows += _device(published)
    if published.compared:
        rows.append(
            _chip(
                f"outputs equal {number(published.equal)}/{number(published.compared)}",
                "good" if published.equal == published.compared else "bad",
                "requests that every lane finished, and how many got the same tokens",
            )
        )
    made = sum(lane.checks_made for lane in published.lanes.values())
    if made:
        failed = sum(lane.checks_failed for lane in published.lanes.values())
        step = max(lane.checked_step for lane in published.lanes.values())
        rows.append(
            _chip(
                f"map = tensors at step {number(step)}"
                if not failed
                else f"map differs from the tensors in {failed} of {made} checks",
                "bad" if failed else "good",
                "the map was rebuilt from the tensors (NaN where free, tags and layer 0's keys "
                f"where written) and equals the bookkeeping slot for slot; {made} checks made",
            )
        )
    rows += _scaling(published)
    return rows


def _device(published: Published) -> list[dict[str, str]]:
    """Where the pools are, how they are read, and what a GPU says of its own memory."""
    ways = {name: lane.attention for name, lane in published.lanes.items() if lane.attention}
    read = "".join(f"; {name}: {way}" for name, way in ways.items())
    rows = [_chip(published.device, "plain", f"where the pools are{read}")]
    if (memory := published.memory) is None:
        return rows
    gib = {name: f"{count / 2**30:,.1f} GiB" for name, count in memory._asdict().items()}
    pools = sum(v.snapshot.capacity * v.snapshot.slot_bytes for v in published.lanes.values())
    rows.append(
        _chip(
            f"{gib['allocated_bytes']} allocated, {gib['reserved_bytes']} reserved, "
            f"{gib['free_bytes']} free",
            "plain",
            f"what torch and the GPU say of its {gib['total_bytes']}; the pools of this run are "
            f"{pools / 2**30:,.1f} GiB of what is allocated",
        )
    )
    return rows + [
        _chip(f"{name}: not in place", "warn", way)
        for name, way in ways.items()
        if way.startswith("gathered")
    ]


def _kind(published: Published) -> dict[str, str]:
    if published.config.dry:
        return _chip("dry", "warn", "memory only: no model, no tensors")
    return _chip(
        "real tensors",
        "good",
        f"K and V lie in torch tensors on {published.device}; a small decoder writes and reads "
        "them",
    )


def _scaling(published: Published) -> list[dict[str, str]]:
    mix, scaling = published.config.mix, published.scaling
    rows = []
    if mix.trace and "trace" in (mix.prompts, mix.outputs):
        rows.append(
            _chip(
                f"{mix.trace} lengths / {scaling.divide}",
                "plain",
                f"{source_of(mix.trace)}: lengths divided by "
                f"{scaling.divide} to fit the context of "
                f"{published.config.memory.context:,} ({scaling.divided:,} of {scaling.of:,} "
                f"requests so far, {scaling.raised:,} of them with a length raised to 1 token)",
            )
        )
    if scaling.clipped:
        rows.append(
            _chip(
                f"{number(scaling.clipped)} of {number(scaling.of)} cut to context",
                "warn",
                "requests longer than memory.context were shortened",
            )
        )
    return rows


def _chip(label: str, tone: str, help: str) -> dict[str, str]:
    return {"label": label, "tone": tone, "help": help}
