"""Which lanes the compiled way serves exactly. All others run step by step."""

from __future__ import annotations

from kvviz.config import RunConfig


def why_plain(layout: str, config: RunConfig) -> str:
    """Why this lane must run step by step; empty when it can run from event to event."""
    c, e, p = config.contiguous, config.engine, config.paged
    if layout not in ("paged", "contiguous"):
        return f"the {layout} layout"
    found = [
        (e.queue != "strict", f"engine.queue={e.queue}"),
        (e.victim != "youngest", f"engine.victim={e.victim}"),
        (e.preemption != "recompute", f"engine.preemption={e.preemption}"),
        (config.mix.samples > 1, f"mix.samples={config.mix.samples}"),
    ]
    if layout == "paged":
        found += [(p.prefix_sharing, "paged.prefix_sharing")]
    else:
        found += [
            (c.allocator != "fits", f"contiguous.allocator={c.allocator}"),
            (c.fit not in ("first", "best"), f"contiguous.fit={c.fit}"),
            (c.fit == "first" and c.order != "address", f"contiguous.order={c.order}"),
            (c.coalesce != "immediate", f"contiguous.coalesce={c.coalesce}"),
            (c.compaction != "off", f"contiguous.compaction={c.compaction}"),
        ]
    return ", ".join(text for wrong, text in found if wrong)
