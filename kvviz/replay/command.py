"""`python -m kvviz replay`: its options, and what it prints."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from kvviz.cli_write import write
from kvviz.errors import ConfigError
from kvviz.replay.load import STEP_MS, Load, load_of
from kvviz.replay.sizes import (
    DEFAULT_GIB,
    DEFAULT_MODEL,
    Pool,
    gpu_names,
    gpu_pool,
    memory_pool,
    model_names,
    slot_bytes_of,
)

_HELP = f"""\
Serve a trace's requests through dry lanes (memory only) and compare them.

FILE is any file of requests (see `trace`), the name of a fitted mix (drawn with its lengths
undivided) or a preset. Arrivals in seconds become steps of --step-ms, {STEP_MS:g} ms unless said
otherwise: an assumption, for nothing here computes tokens.

The pool: --slots; or --gpu-memory (GiB of KV memory) and --model; or --gpu, what that GPU has left
beside --model's weights. A preset has its own.
A lane: NAME, or OWN_NAME=NAME,a.b=value,... with settings that hold in it alone."""


def add_replay(commands: Any) -> None:
    """Register the command with an argparse sub-parser collection."""
    parser = commands.add_parser(
        "replay",
        help="serve a trace of requests, dry, at the size of a real server",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="FILE|MIX|PRESET")
    parser.add_argument("--model", default=DEFAULT_MODEL, help=", ".join(model_names()))
    parser.add_argument(
        "--gpu-memory", type=float, metavar="GiB", help=f"KV memory (default {DEFAULT_GIB:g})"
    )
    parser.add_argument("--gpu", metavar="NAME", help=", ".join(gpu_names()))
    parser.add_argument("--share", type=float, default=0.9, help="of that GPU, for the engine")
    parser.add_argument("--tp", type=int, default=1, help="GPUs that share the model")
    parser.add_argument("--slots", type=int, help="slots in each lane's pool")
    parser.add_argument("--lane", action="append", default=[], metavar="NAME[=LANE,a.b=value,...]")
    parser.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="a.b=value", dest="settings",
        help="settings of all lanes (see `run --help`)",
    )  # fmt: skip
    parser.add_argument("--requests", type=int, metavar="N", help="the first N")
    parser.add_argument("--rate", type=float, help="requests a second, in place of the trace's")
    parser.add_argument(
        "--cap-gaps", type=float, metavar="S", help="idle gaps of a file are cut to S seconds"
    )
    parser.add_argument(
        "--spread", type=float, metavar="S",
        help="requests with one and the same stamp are spread over up to S seconds",
    )  # fmt: skip
    parser.add_argument("--step-ms", type=float, default=STEP_MS, help="length of a step")
    parser.add_argument("--context", type=int, help="longest request; longer ones are cut")
    parser.add_argument("--unit", help="unit of the file's arrivals (s, ms, us, ns)")
    parser.add_argument("--plain", action="store_true", help="step by step in every lane")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare events with the step-by-step engine for every policy, on up to 20,000",
    )
    parser.add_argument("--json", metavar="FILE", help="write the report (- for standard output)")
    parser.set_defaults(command=run_replay)


def run_replay(args: argparse.Namespace) -> int:
    """Exit status: 0, or 1 when a check found a difference."""
    from kvviz.replay.lanes import base_of, is_preset, lane_specs
    from kvviz.replay.replay import replay, replay_report, table

    pool = _pool(args, own=is_preset(args.source))
    slot_bytes = pool.slot_bytes if pool else slot_bytes_of(args.model)
    load = load_of(
        args.source,
        slots=pool.slots if pool else 0,
        rows=args.requests,
        rate=args.rate,
        step_ms=args.step_ms,
        context=args.context,
        unit=args.unit,
        cap_s=args.cap_gaps,
        spread_s=args.spread,
    )
    if pool:
        load = load.noted(pool.text)
    base = base_of(args.source, pool and pool.slots, load.context, args.settings)
    if args.check:
        return _check(load, base)
    specs = lane_specs(args.lane, base)
    results = replay(load, specs, slot_bytes, _told(), plain=args.plain)
    report = replay_report(load, specs, results, slot_bytes)
    if args.json != "-":
        print(table(report))
    write(report, args.json)
    return 0


def _pool(args: argparse.Namespace, own: bool) -> Pool | None:
    """None where nothing was said of it and the preset has its own."""
    said = [name for name in ("slots", "gpu_memory", "gpu") if getattr(args, name) is not None]
    if len(said) > 1:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in said)
        raise ConfigError(f"{options} both say how large the pool is: give one.")
    if args.slots is not None:
        return Pool(args.slots, slot_bytes_of(args.model), f"A pool of {args.slots:,} slots.")
    if args.gpu is not None:
        return gpu_pool(args.model, args.gpu, args.share, args.tp)
    if own and not said:
        return None
    return memory_pool(args.model, DEFAULT_GIB if args.gpu_memory is None else args.gpu_memory)


def _check(load: Load, base: Any) -> int:
    from kvviz.replay.check import CHECKED, VARIANTS, compare

    first = load.first(CHECKED)
    equal = True
    for name, (layout, changes) in VARIANTS.items():
        found = compare(first, base.replace(changes), layout)
        equal &= not found.difference
        print(
            f"{name:20} {found.events:>10,} events, {found.steps:>9,} steps: "
            f"{found.difference or 'equal'} ({found.plain_seconds:.1f} s, "
            f"{found.fast_seconds:.3f} s)",
            flush=True,
        )
    return 0 if equal else 1


def _told() -> Callable[[Any], bool] | None:
    """Progress on standard error, at most five times a second; none where nobody looks."""
    if not sys.stderr.isatty():
        return None
    last = 0.0

    def watch(progress: Any) -> bool:
        nonlocal last
        now = time.monotonic()
        if now - last > 0.2:
            last = now
            left = "" if progress.seconds_left is None else f", {progress.seconds_left:,.0f} s left"
            print(
                f"\r{progress.lane}: {progress.done:,} of {progress.of:,}{left}\033[K",
                end="", file=sys.stderr, flush=True,
            )  # fmt: skip
        return True

    return watch
