"""The study in words: what explains the differences, from its own numbers; and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvviz.studies.paper import NEAR, PARTS, SLOTS

_ROWS = (*PARTS, "batched")


def notes(report: Mapping[str, Any]) -> list[str]:
    """Sentences; those about a system that was not measured are left out."""
    systems = report["systems"]
    found = [_verdict(systems)]
    if _measured(systems, "Orca (Max)"):
        found.append(_sizes(systems["Orca (Max)"]))
    if all(_measured(systems, name) for name in ("Orca (Pow2)", "Orca (Oracle)")):
        found.append(_rounding(systems))
    if _measured(systems, "vLLM"):
        found.append(_load(systems["vLLM"]))
    return found


def table(report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A row a system and figure: published, measured (mean over seeds and standard deviation),
    and their difference; None is not told, or not measured."""
    return [
        {
            "system": name,
            "figure": figure if figure != "batched" else "requests batched",
            "published": system["published"][figure],
            "measured": system["measured"] and round(_mean(system, figure), 2),
            "deviation": system["measured"] and round(system["measured"][figure]["deviation"], 2),
            "difference": system["difference"].get(figure),
        }
        for name, system in report["systems"].items()
        for figure in _ROWS
    ]


def text(report: Mapping[str, Any]) -> str:
    """The table and the notes for a terminal."""
    head = ("", "", "published", "measured", "+-", "difference")
    lines = [head] + [
        (row["system"], row["figure"], *(_cell(row[name]) for name in list(row)[2:]))
        for row in table(report)
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    aligned = [
        "  ".join(
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    failed = [f"failed: {key}: {why}" for key, why in report["failed"].items()]
    return "\n".join([*aligned, "", *notes(report), *failed, "", f"Source: {report['source']}"])


def _verdict(systems: Mapping[str, Any]) -> str:
    far = [
        f"{name}, {part} ({system['difference'][part]:+.1f})"
        for name, system in systems.items()
        for part in PARTS
        if abs(system["difference"].get(part, 0)) > NEAR
    ]
    missing = [name for name, system in systems.items() if system["measured"] is None]
    if missing:
        return f"Not measured: {', '.join(missing)}."
    if far:
        return f"More than {NEAR:.0f} points of the pool from the published bar: {'; '.join(far)}."
    return f"Every bar of figure 2 lies within {NEAR:.0f} points of the published one."


def _sizes(orca_max: Mapping[str, Any]) -> str:
    """Seven regions of 2,048 and nothing else: what is left to differ is the requests' size."""
    published = orca_max["published"]
    theirs = _slots_each(published["token states"], published["batched"])
    ours = _slots_each(_mean(orca_max, "token states"), _mean(orca_max, "batched"))
    return (
        f"Orca (Max) holds seven regions of 2,048 in {SLOTS:,} slots, in the paper and here, so "
        f"its bars differ by the requests alone: {theirs:,.0f} slots written on average in the "
        f"paper (its share over its batch), {ours:,.0f} here. Our lengths have the paper's means, "
        "but come from another sample of ShareGPT, with a tail of its own."
    )


def _rounding(systems: Mapping[str, Any]) -> str:
    shares = " and ".join(
        f"{_mean(systems[name], 'rounding'):.1f} of "
        f"{_mean(systems[name], 'external and others'):.1f} points in {name}"
        for name in ("Orca (Pow2)", "Orca (Oracle)")
    )
    return (
        "External and others is mostly the buddies' rounding of prompt and reserved output to a "
        f"power of two: {shares}. The rest is free blocks too small for the head of the queue."
    )


def _load(vllm: Mapping[str, Any]) -> str:
    published, batched = vllm["published"], _mean(vllm, "batched")
    each = _slots_each(published["token states"], published["batched"])
    ours = _slots_each(_mean(vllm, "token states"), batched)
    return (
        f"vLLM's two published figures, {published['token states']} % and "
        f"{published['batched']} requests, would make {each:,.0f} slots written for each request; "
        f"here it is {ours:,.0f}, with {batched:.1f} requests, and {published['batched']} of our "
        "size would not fill the pool. Load may explain it: here the queue never runs dry, figure "
        "13a is at 2 requests a second, and the load of figure 2 is not told."
    )


def _slots_each(share: float, batched: float) -> float:
    """Slots for each request, from a share of the pool in percent."""
    return share / 100 * SLOTS / batched


def _measured(systems: Mapping[str, Any], name: str) -> bool:
    return systems[name]["measured"] is not None


def _mean(system: Mapping[str, Any], figure: str) -> float:
    """Of a system that was measured."""
    return system["measured"][figure]["mean"]


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"
