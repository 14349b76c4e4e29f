"""The long form: `python -m tests.fuzz --inputs 100000`. Says what it found, and how to get it
again (`--target NAME --seed N --inputs 1`)."""

from __future__ import annotations

import argparse
import collections
import resource
import sys
import time
import traceback
import tracemalloc
import warnings
from random import Random

from tests.fuzz.targets import TARGETS, attack

MEMORY_EVERY = 25


def main() -> int:
    """Exit status: 0, or 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--target", choices=TARGETS, action="append")
    parser.add_argument("--seed", type=int, default=1, help="of the first input; the others follow")
    parser.add_argument("--most", type=int, default=20, help="kinds of findings to be shown")
    args = parser.parse_args()
    warnings.simplefilter("error")
    names = args.target or list(TARGETS)
    total = sum(TARGETS[name].share for name in names)
    found: dict[tuple[str, str], int] = {}
    counts = {name: max(1, args.inputs * TARGETS[name].share // total) for name in names}
    for memory in (False, True):
        if memory:  # last: to stop it while a library's thread allocates crashes Python 3.11
            tracemalloc.start()
        for name, count in counts.items():
            seeds = range(args.seed, args.seed + count)
            mine = [seed for seed in seeds if (seed % MEMORY_EVERY == 0) == memory]
            _attack_all(name, mine, memory, found, args.most)
    for (name, where), times in collections.Counter(found).most_common():
        print(f"FOUND {times:,} x {name}: {where}")
    print(f"{sum(found.values()):,} findings of {len(found):,} kinds")
    return 1 if found else 0


def _attack_all(
    name: str, seeds: list[int], memory: bool, found: dict[tuple[str, str], int], most: int
) -> None:
    began, refused = time.process_time(), 0
    for seed in seeds:
        try:
            refused += bool(attack(name, Random(f"{name} {seed}"), memory=memory))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            _note(found, name, seed, error, most)
    took = time.process_time() - began
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{name:10} {len(seeds):>8,} inputs, {refused / max(len(seeds), 1):.0%} refused, "
          f"{took:,.0f} s of processor time, {largest:,} MiB at most"
          f"{', memory measured' if memory else ''}", flush=True)  # fmt: skip


def _note(
    found: dict[tuple[str, str], int], name: str, seed: int, error: BaseException, most: int
) -> None:
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "/kvviz/" in f.filename] or frames
    where = f"{type(error).__name__} {own[-1].filename.rpartition('/kvviz/')[2]}:{own[-1].lineno}"
    key = (name, where)
    found[key] = found.get(key, 0) + 1
    if found[key] == 1 and len(found) <= most:
        print(f"\n--- {where} (--target {name} --seed {seed} --inputs 1)", file=sys.stderr)
        text = "".join(traceback.format_exception(error, limit=-5, chain=False))
        print("\n".join(line[:400] for line in text.splitlines()), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
