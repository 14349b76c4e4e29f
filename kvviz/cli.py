"""The command line: `python -m kvviz run | replay | sweep | scenario | report | ...`.

A bad setting ends with status 2 and one line. Commands import what they need, so that `--help`
and dry runs load no torch.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvviz import __version__
from kvviz.cli_sweeps import add_paper, add_sweep
from kvviz.cli_write import write, write_text
from kvviz.config import RunConfig, parse_overrides
from kvviz.errors import ConfigError, KvvizError
from kvviz.planning.arguments import add_arguments
from kvviz.replay.command import add_replay
from kvviz.soak.command import add_soak
from kvviz.workloads.presets import DEFAULT_PRESET, PRESETS, preset_config

if TYPE_CHECKING:
    from kvviz.build import Backend

MAX_STEPS = 5_000_000  # each step is kept, in 64 bytes a lane
_SNAPSHOTS = 20_000  # of a recording
_REPORT_SNAPSHOTS = 600  # of a run made for a report


def main(argv: list[str] | None = None) -> int:
    """Exit status: 0, or 2 for what a person can fix (one line on standard error)."""
    words = sys.argv[1:] if argv is None else argv
    try:
        if words[:1] == ["train"]:  # its own parser: building it here would load torch
            return _train(words[1:])
        args = _parser().parse_args(words)
        return args.command(args)
    except KvvizError as error:
        print(f"kvviz: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvviz", description="Real KV caches side by side, and why one of them refuses."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="serve a mix without a browser and print what came of it",
        description=_settings_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_run_words(run)
    run.add_argument("--json", metavar="FILE", help="write the report (- for standard output)")
    run.add_argument("--record", metavar="FILE", help="save the run as a recording (.kvviz)")
    run.add_argument(
        "--record-every",
        type=int,
        metavar="N",
        help=f"snapshots of every n-th step (default: up to {_SNAPSHOTS:,} of them)",
    )
    run.add_argument(
        "--memory-snapshot",
        metavar="FILE",
        help="on a GPU: torch's memory snapshot, for pytorch.org/memory_viz",
    )
    run.set_defaults(command=_run)

    scenario = commands.add_parser(
        "scenario", help="replay an incident from a JSON file, and print what came of it"
    )
    scenario.add_argument("file", metavar="FILE", help="the scenario (- for standard input)")
    scenario.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const="-",
        help="write the report (to standard output when no file is given)",
    )
    scenario.set_defaults(command=_scenario)
    report = commands.add_parser(
        "report",
        help="write one HTML file about a recording, or about a run made for it",
        description=_settings_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    report.add_argument("recording", nargs="?", metavar="RECORDING", help="a file of run --record")
    _add_run_words(report)
    report.add_argument("--out", required=True, metavar="FILE", help="the HTML file")
    report.set_defaults(command=_report)

    presets = commands.add_parser("presets", help="list the presets")
    presets.set_defaults(command=_presets)

    trace = commands.add_parser(
        "trace", help="read a file of requests (CSV, JSON, JSON lines) and print what is in it"
    )
    trace.add_argument("file", metavar="FILE")
    trace.add_argument("--unit", help="unit of its arrivals (s, ms, us, ns) if not the format's")
    trace.add_argument("--set-aside", metavar="FILE", help="write the rows set aside as CSV")
    trace.add_argument("--json", metavar="FILE", help="write the numbers (- for standard output)")
    trace.set_defaults(command=_trace)
    capacity = commands.add_parser("capacity", help="plan the KV pool of a GPU, for a mix")
    add_arguments(capacity)
    capacity.set_defaults(command=_capacity)

    add_replay(commands)

    bench = commands.add_parser("bench", help="measure, and print ratios")
    bench.add_argument(
        "what",
        nargs="*",
        metavar="engine|chat|snapshot|frame|allocators|replay|compaction|cuda",
        help="all of them by default",
    )
    bench.add_argument("--json", metavar="FILE")
    bench.set_defaults(command=_bench)

    add_soak(commands)
    add_sweep(commands)
    add_paper(commands)

    commands.add_parser("train", help="train the shipped model anew", add_help=False)
    return parser


def _add_run_words(parser: argparse.ArgumentParser) -> None:
    """What run is made."""
    parser.add_argument("--preset", default=DEFAULT_PRESET, help=", ".join(PRESETS))
    parser.add_argument(
        "--trace",
        metavar="FILE",
        help="serve this file's requests (see `trace`), scaled to the context",
    )
    parser.add_argument("--dry", action="store_true", help="memory only: no model, no tensors")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument(
        "--set",
        nargs="+",
        action="extend",
        default=[],
        metavar="a.b=value",
        dest="settings",
        help="settings over the preset's",
    )


def _run(args: argparse.Namespace) -> int:
    from kvviz.report import table

    every = max(1, args.steps // _SNAPSHOTS) if args.record_every is None else args.record_every
    if every < 1:
        raise ConfigError(f"--record-every {every}: 1 or more was expected.")
    for target in (args.record, args.memory_snapshot):
        if target:
            _check_target(target)
    report, recording = _serve(args, every if args.record else 0, args.memory_snapshot or "")
    if args.record:
        from kvviz.recording.files import save

        save(recording, args.record)
    if args.json != "-":
        print(table(report))
    write(report, args.json)
    return 0


def _report(args: argparse.Namespace) -> int:
    from kvviz.html.document import report
    from kvviz.recording.files import load, save, unpack

    _check_target(args.out)
    if args.recording:
        recording = load(args.recording)
    else:
        recording = unpack(_serve(args, max(1, args.steps // _REPORT_SNAPSHOTS))[1])
    save(report(recording).encode(), args.out)
    return 0


def _check_target(where: str) -> None:
    from kvviz.recording.files import check_target

    check_target(where)


def _serve(args: argparse.Namespace, every: int, memory_file: str = "") -> tuple[dict, bytes]:
    """Make the run. (numbers, recording with every n-th step's snapshots; empty when n is 0)"""
    from kvviz.build import build_lanes, device_memory, load_backend, record_memory
    from kvviz.live.hues import Follower, HueBook
    from kvviz.recording.tape import Tape
    from kvviz.report import run_report

    if not 1 <= args.steps <= MAX_STEPS:
        raise ConfigError(f"--steps {args.steps}: 1 to {MAX_STEPS:,} were expected.")
    config = preset_config(args.preset)
    if args.trace:
        config = config.replace(_requests_of(args.trace))
    config = config.replace(parse_overrides(args.settings))
    if args.dry:
        config = config.replace({"dry": True})
    if memory_file and config.dry:
        raise ConfigError("--memory-snapshot shows a GPU's allocator, and a dry run uses none.")
    backend = None if config.dry else load_backend(config.model)
    if memory_file and backend:
        record_memory(backend)
    lanes = build_lanes(config, backend, history=args.steps)
    try:
        tape, colours = Tape(lanes, every) if every else None, Follower(HueBook())
        for _ in range(args.steps):
            lanes.step()
            if tape:
                tape.take()
                colours.step(lanes)
        if not config.dry and config.engine.check_every:
            lanes.check_maps()
        device = backend.device_name if backend else "dry"
        report = run_report(lanes, device, device_memory(backend) if backend else None)
        if memory_file and backend:
            _save_memory(backend, memory_file)
        return report, tape.close(device, report, colours.book.looks) if tape else b""
    finally:
        lanes.close()


def _requests_of(file: str) -> dict[str, Any]:
    """Settings that serve this file's requests."""
    from kvviz.workloads.recorded import digest_of, keep, settings_for
    from kvviz.workloads.traces.read import read_trace

    return settings_for(keep(read_trace(file), digest_of(file)))


def _save_memory(backend: Backend, where: str) -> None:
    from kvviz.build import memory_snapshot
    from kvviz.recording.files import save

    save(memory_snapshot(backend), where)


def _scenario(args: argparse.Namespace) -> int:
    from kvviz.scenario.read import read
    from kvviz.scenario.replay import report
    from kvviz.scenario.table import table

    told = report(read(_source(args.file)))
    if args.json != "-":
        print(table(told))
    write(told, args.json)
    return 0


def _source(where: str) -> bytes:
    """One byte more than is read at most is enough to know that it is too long."""
    from kvviz.scenario.text import MAX_BYTES

    if where == "-":
        return sys.stdin.buffer.read(MAX_BYTES + 1)
    try:
        with Path(where).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no file name"
        raise ConfigError(f"{where!r} can't be read: {why}.") from error


def _capacity(args: argparse.Namespace) -> int:
    from kvviz.planning.report import report_of, table

    report = report_of(args)
    if args.json != "-":
        print(table(report))
    write(report, args.json)
    return 0


def _presets(_args: argparse.Namespace) -> int:
    for name, preset in PRESETS.items():
        print(f"{name:20} {preset.title}. {preset.story}")
    return 0


def _trace(args: argparse.Namespace) -> int:
    from kvviz.workloads.traces.describe import describe, table
    from kvviz.workloads.traces.read import read_trace

    trace = read_trace(args.file, unit=args.unit)
    summary = describe(trace)
    if args.json != "-":
        print(table(summary))
    write(summary, args.json)
    if args.set_aside:
        write_text(trace.set_aside.csv(), args.set_aside)
    return 0


def _bench(args: argparse.Namespace) -> int:
    from kvviz.bench.suite import run_benches

    report = run_benches(args.what)
    write(report, args.json)
    return 0


def _train(words: list[str]) -> int:
    from kvviz.model.train import main as train_main

    return train_main(words)


def _settings_help() -> str:
    lines = ["settings (--set a.b=value) and their defaults:"]
    for path, value, meta in RunConfig().walk():
        if not path.startswith(("dry", "preset")):
            lines.append(f"  {path + '=' + str(value):38} {meta['help']}")
    return "\n".join(lines)
