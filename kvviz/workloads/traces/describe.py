"""A trace in numbers, for a table or JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from kvviz.workloads.traces.trace import Trace

_SHORTEST_S = 1e-9  # a span below it has no rate
PERCENTILES = (1, 5, 25, 50, 75, 95, 99)


def describe(trace: Trace) -> dict[str, Any]:
    """Lengths in tokens, times in seconds; None where the file has no such thing.

    `arrivals.gap_variation` is the standard deviation of the gaps over their mean (Poisson: 1);
    `prefix.shared` is the share of block references seen before.
    """
    return {
        "format": trace.format,
        "units": trace.units,
        "rows": trace.rows,
        "set_aside": trace.set_aside.count,
        "set_aside_by_reason": trace.set_aside.by_reason,
        "prompt_tokens": trace.prompt_tokens,
        "output_tokens": trace.output_tokens,
        "span_s": trace.span_s,
        "prompt": _lengths(trace.prompt),
        "output": _lengths(trace.output),
        "total": _lengths(trace.prompt + trace.output),
        "arrivals": _arrivals(trace),
        "prefix": _prefix(trace),
        "notes": list(trace.notes),
    }


def table(summary: dict[str, Any]) -> str:
    """`describe` as text."""
    lines = [f"{'format':14} {summary['format']}"]
    lines += [f"{'unit of ' + name:14} {unit}" for name, unit in summary["units"].items()]
    lines += [
        f"{'rows':14} {summary['rows']:,}",
        f"{'set aside':14} {summary['set_aside']:,}",
        *(f"{n:>16,} {reason}" for reason, n in summary["set_aside_by_reason"].items()),
        f"{'prompt tokens':14} {summary['prompt_tokens']:,}",
        f"{'output tokens':14} {summary['output_tokens']:,}",
    ]
    if summary["arrivals"]:
        found = summary["arrivals"]
        lines.append(f"{'span':14} {summary['span_s']:,.3f} s, {found['rate']:,.4g} requests/s")
        lines.append(
            f"{'gaps':14} variation {found['gap_variation']:.3f}, longest "
            f"{found['longest_gap_s']:,.3f} s, {found['same_stamp']:,} requests share a stamp"
        )
    if summary["prefix"]:
        found = summary["prefix"]
        lines.append(
            f"{'hash ids':14} {found['blocks']:,} of {found['block_tokens']} tokens, "
            f"{found['distinct']:,} distinct, {found['shared']:.1%} seen before"
        )
    heads = list(summary["prompt"])
    lines += ["", f"{'tokens':10}" + "".join(f"{h:>9}" for h in heads)]
    for name in ("prompt", "output", "total"):
        lines.append(f"{name:10}" + "".join(f"{summary[name][h]:>9,.0f}" for h in heads))
    return "\n".join([*lines, "", *summary["notes"]]).rstrip()


def _lengths(tokens: np.ndarray) -> dict[str, float]:
    found = np.percentile(tokens, PERCENTILES)
    named = {f"p{p}": round(float(v), 3) for p, v in zip(PERCENTILES, found, strict=True)}
    return {**named, "max": float(tokens.max()), "mean": round(float(tokens.mean()), 3)}


def _arrivals(trace: Trace) -> dict[str, float] | None:
    span = trace.span_s
    if trace.arrival_s is None or trace.rows < 2 or span is None or span < _SHORTEST_S:
        return None
    gaps = np.diff(trace.arrival_s)
    return {
        "rate": (trace.rows - 1) / span,
        "gap_variation": float(gaps.std() / gaps.mean()),
        "longest_gap_s": float(gaps.max()),
        "same_stamp": int(np.count_nonzero(gaps == 0)),
        "reordered": trace.reordered,
    }


def _prefix(trace: Trace) -> dict[str, float] | None:
    if trace.prefix is None:
        return None
    blocks, distinct = len(trace.prefix.ids), len(np.unique(trace.prefix.ids))
    return {
        "block_tokens": trace.prefix.block,
        "blocks": blocks,
        "distinct": distinct,
        "shared": (blocks - distinct) / blocks,
    }
