"""A capacity plan as one dict of numbers, and as a table."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvviz.capacity.fields import MAX_TEXT, parse_config
from kvviz.capacity.kvshape import KVShape
from kvviz.capacity.plan import Ask, Plan, gib, make_plan, shape_dict
from kvviz.capacity.presets import model, preset_named, unlike_preset
from kvviz.capacity.reader import read_shape
from kvviz.capacity.sizes import read_sizes
from kvviz.errors import ConfigError
from kvviz.planning.measure import measure

UNKNOWN_SIZE = (
    "how many parameters the model has can't be told from its config, so there is no pool to "
    "plan. Say it: --params 8.03 (in 1e9), or --weights-gib."
)


def report_of(args: argparse.Namespace) -> dict[str, Any]:
    """What the options ask for. Raises KvvizError."""
    name, config, hf_quant = _source(args)
    known = preset_named(name)
    ask = Ask(
        gpu_gib=args.gpu_memory,
        share=args.share,
        tp=args.tp,
        weights=args.weights or (known.weights if known else "bf16"),
        parameters=args.params * 1e9 if args.params else (known.parameters if known else None),
        weights_gib=args.weights_gib,
        activation_gib=args.activation_gib,
        side_gib=args.side_gib,
        batch_tokens=args.batch_tokens,
        block_size=args.block_size,
        max_len=args.max_len,
    )
    shape = checked_shape(config, name, args.kv_dtype, hf_quant)
    report: dict[str, Any] = {"model": name, "tp": ask.tp, "weights": ask.weights}
    plan = plan_or_none(shape, config, ask)
    if plan is None:
        return report | _unplanned(shape.on_rank(ask.tp))
    measured = measure(plan, args.mix, requests=args.requests, seed=args.seed) if args.mix else None
    return report | plan.as_dict() | {"mix": measured and measured.as_dict()}


def checked_shape(
    config: Mapping[str, Any],
    name: str,
    kv_dtype: str = "auto",
    hf_quant: Mapping[str, Any] | None = None,
) -> KVShape:
    """The shape of the whole model, with a warning where it isn't what its name says."""
    shape = read_shape(config, kv_dtype=kv_dtype, hf_quant=hf_quant)
    return replace(shape, warnings=(*shape.warnings, *unlike_preset(config, name)))


def plan_or_none(shape: KVShape, config: Mapping[str, Any], ask: Ask) -> Plan | None:
    """None when nobody says how large the weights are. Raises CapacityError."""
    sizes = read_sizes(config)
    if ask.parameters is None and ask.weights_gib is None and sizes.parameters is None:
        return None
    return make_plan(shape, sizes, ask)


def table(report: Mapping[str, Any]) -> str:
    """The report as aligned text."""
    rows = [(label, _cell(read(report))) for label, read in _ROWS]
    if report["budget"]:
        b = report["budget"]
        rows += [
            (f"  {label}", gib(b[key]))
            for label, key in (
                ("memory of one GPU", "total_bytes"),
                ("weights", "weights_bytes"),
                ("activation peak", "activation_bytes"),
                ("side buffers", "side_bytes"),
                ("KV pool", "pool_bytes"),
                ("left to others", "unused_bytes"),
            )
        ]
    width = max(len(label) for label, _ in rows)
    lines = [f"{label.ljust(width)}  {cell}" for label, cell in rows]
    if report["mix"]:
        lines += ["", *_mix_lines(report["mix"])]
    lines += [f"note: {note}" for note in (*report["warnings"], *report["notes"])]
    return "\n".join(lines)


def outcome_rows(measured: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row a method, as text; the page and the command line show the same."""
    return [
        {
            "method": o["name"],
            "slots a request": _cell(round(o["slots_mean"])),
            "at once, division": _cell(o["divided"]),
            "at once, measured": _cell(o["measured"]),
            "waste, paper": _waste(o["paper"]),
            "waste, textbook": _waste(o["textbook"]),
            "refuses from (requests a step)": _rate(o),
            "first as": o["refuses_as"] or "n/a",
            "preempted": _cell(o["preempted"]),
            "pool replayed": f"{o['pool_slots']:,}" + (f" (1/{o['scale']})" * (o["scale"] > 1)),
        }
        for o in measured["outcomes"]
    ]


def mix_notes(measured: Mapping[str, Any]) -> list[str]:
    found = list(measured["notes"])
    for outcome in measured["outcomes"]:
        found += [f"{outcome['name']}: {note}" for note in outcome["notes"]]
    return found


def _mix_lines(measured: Mapping[str, Any]) -> list[str]:
    rows = outcome_rows(measured)
    heads = list(rows[0])
    cells = [heads, *([row[head] for head in heads] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    lines = [
        f"mix {measured['mix']}: {measured['requests']:,} requests, mean "
        f"{measured['life_mean']:,.0f} slots at the end of life (prompt + output - 1), "
        f"max_len {measured['max_len']:,}"
    ]
    for line in cells:
        first, *rest = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        lines.append("  ".join([line[0].ljust(len(first)), *rest]))
    return lines + [f"note: {note}" for note in mix_notes(measured)]


def _waste(shares: Mapping[str, float] | None) -> str:
    """Internal and external, in percent of the pool."""
    if shares is None:
        return "n/a"
    return f"{100 * shares['internal']:.1f} + {100 * shares['external']:.1f} %"


def _rate(outcome: Mapping[str, Any]) -> str:
    lowest, clean = outcome["refuses_from"], outcome["clean_up_to"]
    if lowest is None:
        return "n/a" if clean is None else f"above {clean:.3g}"
    return f"{lowest:.3g}" if clean is not None else f"{lowest:.3g} or less"


def _source(args: argparse.Namespace) -> tuple[str, Mapping[str, Any], Mapping[str, Any] | None]:
    """(name, config.json, hf_quant_config.json beside it)"""
    if args.model is not None:
        known = model(args.model)
        return known.name, known.config, None
    path = Path(args.config)
    config = parse_config(_text(path), path.name)
    beside = path.with_name("hf_quant_config.json")
    quant = parse_config(_text(beside), beside.name) if beside.is_file() else None
    named = config.get("_name_or_path")
    return named if isinstance(named, str) else "", config, quant


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_TEXT + 1).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no UTF-8 text. Give a model's config.json.") from error
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or "it is no file name"
        raise ConfigError(f"{path} can't be read: {said}.") from error


def _unplanned(shape: KVShape) -> dict[str, Any]:
    missing = ("pool_bytes", "pool_slots", "blocks", "max_len", "max_len_suggested",
               "concurrency_at_max_len", "budget", "mix")  # fmt: skip
    return shape_dict(shape) | dict.fromkeys(missing) | {"notes": [UNKNOWN_SIZE]}


def _cell(value: float | str | None) -> str:
    if value is None:
        return "n/a"
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


_ROWS: tuple[tuple[str, Callable[[Mapping[str, Any]], Any]], ...] = (
    ("model", lambda r: r["model"] or "config.json"),
    ("GPUs (tensor parallel)", lambda r: r["tp"]),
    ("KV dtype", lambda r: r["kv_dtype"]),
    ("slot", lambda r: r["slot_formula"]),
    ("grows, a token", lambda r: r["grow_formula"]),
    ("constant, a request", lambda r: r["constant_formula"]),
    ("KV pool, bytes", lambda r: r["pool_bytes"]),
    ("KV pool, slots (every layer in full)", lambda r: r["pool_slots"]),
    ("blocks", lambda r: r["blocks"]),
    ("max_len", lambda r: r["max_len"]),
    ("longest request that fits", lambda r: r["max_len_suggested"]),
    ("requests of max_len at once", lambda r: r["concurrency_at_max_len"]),
)
