"""The commands that run many cells: `sweep` and `paper`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from kvviz.cli_write import write, write_text
from kvviz.config import parse_overrides
from kvviz.workloads.presets import DEFAULT_PRESET, PRESETS, preset_config


def add_sweep(commands: Any) -> None:
    sweep = commands.add_parser(
        "sweep",
        help="run a grid of settings, dry, on every core or on a cluster",
        description="Each cell is a dry run. Finished cells are kept on disk and not run again.",
    )
    sweep.add_argument(
        "--grid",
        nargs="+",
        action="extend",
        default=[],
        metavar="a.b=v,v,v",
        help="an axis: a setting and its values (as `run --help` lists them)",
    )
    sweep.add_argument("--preset", default=DEFAULT_PRESET, help=", ".join(PRESETS))
    sweep.add_argument("--lanes", help="layouts, separated by commas (the preset's by default)")
    sweep.add_argument("--seeds", default="1", help="seeds, separated by commas, or a range 1-5")
    sweep.add_argument("--steps", type=int, default=2000)
    sweep.add_argument(
        "--set", nargs="+", action="extend", default=[], metavar="a.b=value", dest="settings",
        help="settings over the preset's, the same in every cell",
    )  # fmt: skip
    sweep.add_argument("--keep", metavar="FOLDER", help="where finished cells are kept")
    sweep.add_argument("--json", metavar="FILE", help="write the result (- for standard output)")
    sweep.add_argument(
        "--csv", metavar="FILE", help="a row a cell and lane (- for standard output)"
    )
    _add_pool(sweep)
    sweep.set_defaults(command=_sweep)


def add_paper(commands: Any) -> None:
    paper = commands.add_parser(
        "paper", help="the PagedAttention paper's figures 2 and 13a, measured beside published"
    )
    paper.add_argument("--seeds", default="1-5", help="seeds, separated by commas, or a range 1-5")
    paper.add_argument("--steps", type=int, default=10_000, help="steps counted in each run")
    paper.add_argument(
        "--unscaled",
        action="store_true",
        help="our ShareGPT-like lengths as they are, not scaled to the paper's means",
    )
    paper.add_argument("--json", metavar="FILE", help="write the report (- for standard output)")
    _add_pool(paper)
    paper.set_defaults(command=_paper)


def _add_pool(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backend", default="loky", help="loky (this machine), dask or ray")
    parser.add_argument("--address", default="", help="of the cluster, tcp://HOST:8786")
    parser.add_argument("--jobs", type=int, default=-1, help="workers on this machine; -1: a core")


def _sweep(args: argparse.Namespace) -> int:
    from kvviz.sweeps.grid import Grid, parse_axes, parse_seeds
    from kvviz.sweeps.kept import Kept, default_folder
    from kvviz.sweeps.pool import Pool
    from kvviz.sweeps.sweep import run_sweep
    from kvviz.sweeps.table import as_csv, text

    base = preset_config(args.preset).replace(parse_overrides(args.settings))
    if args.lanes:
        base = base.replace({"lanes": args.lanes})
    grid = Grid(base, parse_axes(args.grid), parse_seeds(args.seeds), args.steps)
    kept = Kept(Path(args.keep) if args.keep else default_folder())
    result = run_sweep(grid, Pool(args.backend, args.address, args.jobs), kept, told=_progress)
    if "-" not in (args.json, args.csv):
        print(text(result))
    write(result, args.json)
    if args.csv:
        write_text(as_csv(result), args.csv)
    return 0 if result["complete"] else 1


def _paper(args: argparse.Namespace) -> int:
    from kvviz.studies.paper import run_paper
    from kvviz.studies.paper_words import notes, text
    from kvviz.sweeps.grid import parse_seeds
    from kvviz.sweeps.pool import Pool

    report = run_paper(
        parse_seeds(args.seeds),
        Pool(args.backend, args.address, args.jobs),
        steps=args.steps,
        scaled=not args.unscaled,
        told=_progress,
    )
    if args.json != "-":
        print(text(report))
    write({**report, "notes": notes(report)}, args.json)
    return 1 if report["failed"] else 0


def _progress(progress: Any) -> None:
    """One line on standard error, written over itself where that is a terminal."""
    if sys.stderr.isatty():
        end = "\n" if progress.done + progress.failed == progress.total else "\r"
        print(f"{progress.done:,} of {progress.total:,}", end=end, file=sys.stderr, flush=True)
