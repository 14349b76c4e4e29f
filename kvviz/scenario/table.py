"""A report as aligned text: a line for each operation or request, then the whole."""

from __future__ import annotations

from typing import Any

from kvviz.scenario.ops import sentence

OPS_COLUMNS = (
    "op", "ok", "verdict", "start", "free", "holes", "largest", "unusable", "fragmentation",
    "moved", "passes", "used",
)  # fmt: skip
REQUEST_COLUMNS = (
    "request", "verdict", "state", "admitted", "finished", "preemptions", "recomputed",
)  # fmt: skip


def table(told: dict[str, Any]) -> str:
    settings = ", ".join(f"{key} {value}" for key, value in told["layout"].items())
    lines = [
        *(text for text in (told["title"], told["story"]) if text),
        f"{told['capacity']:,} slots; {settings}",
        *_start(told["start"]),
        "",
    ]
    if told["kind"] == "ops":
        lines += _aligned(OPS_COLUMNS, [op_cells(row) for row in told["ops"]], text=3)
        lines += _blank_before(reasons(told))
    else:
        rows = [request_cells(row) for row in told["requests"]]
        lines += _aligned(REQUEST_COLUMNS, rows, text=3)
        lines += ["", *whole(told)]
    extras = ", ".join(f"{key} {value:,}" for key, value in told["extras"].items())
    return "\n".join([*lines, *([f"at the end: {extras}"] if extras else [])])


def op_cells(row: dict[str, Any]) -> tuple[str, ...]:
    """In the order of OPS_COLUMNS."""
    return (
        sentence(row["op"]),
        "yes" if row["ok"] else "no",
        row["verdict"] or "",
        _number(row["start"]),
        _number(row["free"]),
        _number(row["holes"]),
        _number(row["largest_hole"]),
        _number(row["unusable_index"]),
        clipped(row["fragmentation_index"]),
        _number(row["slots_moved"]),
        _number(row["passes"]),
        _number(row["used"]),
    )


def request_cells(row: dict[str, Any]) -> tuple[str, ...]:
    """In the order of REQUEST_COLUMNS."""
    return (
        str(row["request"]),
        row["verdict"] or "",
        row["state"],
        _number(row["admitted_step"]),
        _number(row["finished_step"]),
        _number(row["preemptions"]),
        _number(row["recomputed_tokens"]),
    )


def whole(told: dict[str, Any]) -> list[str]:
    """The run as a whole, in sentences."""
    blocks = f" ({told['peak_units']:,} blocks)" if told["grain"] > 1 else ""
    lines = [
        f"steps: {told['steps']:,}, forward passes: {told['passes']:,}; "
        f"at most {told['peak_used']:,} slots used{blocks}",
        f"{told['preemptions']:,} preemptions, {told['recomputed_tokens']:,} tokens recomputed, "
        f"{told['slots_moved']:,} slots moved, {told['slots_copied']:,} copied on write, "
        f"{told['slots_swapped']:,} swapped",
    ]
    if told["held_never_written"] is not None:
        lines.append(f"held at the end, but never written: {told['held_never_written']:.1%}")
    lock = told["deadlock"]
    if lock:
        held = ", ".join(
            f"request {name} ({slots:,} slots)"
            for name, slots in zip(lock["holders"], lock["held"], strict=True)
        )
        lines.append(
            f"DEADLOCK at step {lock['step']:,}: nobody runs; request {lock['head']} at the head "
            f"needs {lock['need']:,} slots, {lock['free']:,} are free; held by {held or 'nobody'}. "
            "Evict a holder, or admit others past the head."
        )
    if told["stopped"]:
        lines.append(f"stopped: {told['stopped']}")
    return lines


def clipped(index: float | None) -> str:
    """The fragmentation index as a gauge shows it, with the raw value when that lies outside."""
    if index is None:
        return "n/a"
    inside = min(max(index, 0.0), 1.0)
    return f"{inside:.3f}" if inside == index else f"{inside:.3f} ({index:.3f})"


def _start(start: dict[str, Any] | None) -> list[str]:
    if start is None:
        return []
    if start["ok"]:
        return [
            f"max_len {start['max_len']:,} fits: {start['concurrency']:.2f} requests of it at once"
        ]
    return [f"REFUSED at start: {start['reason']} Suggested max_len: {start['suggested_max_len']}"]


def reasons(told: dict[str, Any]) -> list[str]:
    """Why something was not done, a line each, and when the books stopped to balance."""
    found = [
        f"{place}. {sentence(row['op'])}: {row['reason']}"
        for place, row in enumerate(told["ops"], 1)
        if row["reason"]
    ]
    alarm = told["alarm"]
    if alarm:
        off = alarm["difference"]
        what = f"{-off:,} slots lost" if off < 0 else f"{off:,} slots too many"
        found.append(f"BOOKS BROKEN since operation {alarm['operation']:,}: {what} ({off:+,})")
    return found


def _blank_before(lines: list[str]) -> list[str]:
    return ["", *lines] if lines else []


def _aligned(names: tuple[str, ...], rows: list[tuple[str, ...]], text: int) -> list[str]:
    """The first `text` columns to the left, the numbers to the right."""
    every = [names, *rows]
    widths = [max(len(row[i]) for row in every) for i in range(len(names))]
    return [
        "  ".join(
            cell.ljust(width) if i < text else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in every
    ]


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"
