"""`python -m kvviz soak`: its words, what it prints, and its exit status."""

from __future__ import annotations

import argparse
import itertools
import math
import sys
import time
from typing import TYPE_CHECKING, Any

from kvviz.cli_write import write
from kvviz.errors import ConfigError

if TYPE_CHECKING:
    from kvviz.build import Backend

MOST_MINUTES = 7 * 24 * 60
_TOLD_SECONDS = 30.0
_MiB = 1 << 20


def add_soak(commands: Any) -> None:
    soak = commands.add_parser(
        "soak",
        help="run every layout under changing mixes, with all checks on, and watch the memory",
        description="Serves drawn settings on tensors, round after round. Ends with status 1 when "
        "an invariant is broken or resident memory grows by more than 2 % after warm-up.",
    )
    soak.add_argument("--minutes", type=float, default=1.0)
    soak.add_argument("--seed", type=int, default=1, help="draws the settings of all rounds")
    soak.add_argument("--round", type=int, metavar="N", help="this round only, as a whole")
    soak.add_argument(
        "--model", help="shipped, smollm2 or a folder (default: a small one of random weights)"
    )
    soak.add_argument("--json", metavar="FILE", help="write the report (- for standard output)")
    soak.set_defaults(command=_soak)


def _soak(args: argparse.Namespace) -> int:
    from kvviz.soak.soak import run_soak

    if not 0 < args.minutes <= MOST_MINUTES:
        raise ConfigError(f"--minutes {args.minutes}: more than 0 and up to {MOST_MINUTES:,}.")
    if args.seed < 0 or (args.round or 0) < 0:
        raise ConfigError("--seed and --round: 0 or more were expected.")
    alone = args.round is not None
    report = run_soak(
        _backend(args.model),
        math.inf if alone else args.minutes * 60,
        args.seed,
        numbers=[args.round] if alone else itertools.count(),
        told=_Told(),
    )
    told = report.as_dict()
    if args.json != "-":
        print(text(told))
    write(told, args.json)
    return 0 if report.holds else 1


def _backend(model: str | None) -> Backend:
    from kvviz.build import load_backend
    from kvviz.soak.weights import random_backend

    if model is None:
        return random_backend()
    return load_backend("" if model == "shipped" else model)


def text(report: dict[str, Any]) -> str:
    """The report in words."""
    resident, growth = report["resident"], report["growth"]
    grown = "too few rounds to tell whether it grows" if growth is None else f"{growth:+.2%}"
    lines = [
        f"seed {report['seed']}: {report['rounds']:,} rounds in {report['seconds']:,.0f} s",
        f"  steps               {report['steps']:>12,}",
        f"  steps of lanes      {sum(report['lane_steps'].values()):>12,}"
        f"  ({', '.join(f'{n} {c:,}' for n, c in sorted(report['lane_steps'].items()))})",
        f"  frames made         {report['frames']:>12,}  ({report['frame_bytes'] / _MiB:,.1f} MiB)",
        f"  invariants checked  {report['invariants']:>12,}",
        f"  maps rebuilt        {report['map_checks']:>12,}",
        f"  outputs compared    {report['outputs_compared']:>12,}",
        f"  resident memory     {resident[-1] / _MiB:>12,.0f}  MiB; after warm-up: {grown}",
        f"  failures            {len(report['failures']):>12,}",
    ]
    for failure in report["failures"]:
        lines += [
            f"round {failure['round']}, step {failure['step']}: {failure['error']}",
            f"  again: {failure['again']}",
            f"  --set {failure['settings']}",
        ]
    return "\n".join([*lines, "holds" if report["holds"] else "DOES NOT HOLD"])


class _Told:
    """A line on standard error now and then."""

    def __init__(self) -> None:
        self._next = time.monotonic() + _TOLD_SECONDS

    def __call__(self, report: Any) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _TOLD_SECONDS
        print(
            f"{report.seconds:,.0f} s: {report.rounds:,} rounds, {report.steps:,} steps, "
            f"{report.resident[-1] / _MiB:,.0f} MiB, {len(report.failures)} failures",
            file=sys.stderr,
            flush=True,
        )
