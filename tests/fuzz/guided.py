"""The readers under Atheris, which looks for bytes that reach new lines of them:
`pip install atheris==3.0.0 && python -m tests.fuzz.guided trace --inputs 100000`.

Corpus and findings stay in `artifacts/fuzz`, so that a second run goes on where the first ended.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module, util
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

FOLDER = Path("artifacts/fuzz")
LONGEST = 1 << 16  # bytes of an input
GIBIBYTES = 3
SLOWER = 3.0  # seconds more than without the instruments


class Reader(NamedTuple):
    """`module`.`call` takes the bytes; `good` in the same module gives inputs to begin with.
    `watched`: packages whose branches count. `extra` as in `targets.Target`."""

    module: str
    call: Callable[[Any, bytes], object]
    good: Callable[[Any], list[bytes]]
    watched: tuple[str, ...]
    extra: float = 0.0


READERS = {
    "trace": Reader(
        "tests.fuzz.files",
        lambda files, data: files.read_requests(data, None, None, None),
        lambda files: [text.encode() for text in files.TRACES] + [files.RATES, files.LENGTHS],
        ("kvviz.workloads", "kvviz.replay.load"),
    ),
    "scenario": Reader(
        "tests.fuzz.files",
        lambda files, data: files.replay_scenario(data),
        lambda files: files.scenarios(),
        ("kvviz.scenario",),
        extra=8.0,
    ),
    "config": Reader(
        "tests.fuzz.files",
        lambda files, data: files.plan_for(data, "auto", None, 1),
        lambda files: files.configs(),
        ("kvviz.capacity", "kvviz.planning"),
    ),
    "recording": Reader(
        "tests.fuzz.recordings",
        lambda recordings, data: recordings.look(data),
        lambda recordings: [recordings.zipped(dict(recordings.members()))],
        ("kvviz.recording", "kvviz.live.replayed"),
    ),
    "manifest": Reader(
        "tests.fuzz.recordings",
        lambda recordings, data: recordings.look(
            recordings.packed({**recordings.members(), recordings.MANIFEST: data})
        ),
        lambda recordings: [recordings.members()[recordings.MANIFEST]],
        ("kvviz.recording", "kvviz.live.replayed"),
    ),
    "gguf": Reader(
        "tests.fuzz.checkpoints",
        lambda checkpoints, data: checkpoints.convert(data),
        lambda checkpoints: [checkpoints.gguf()],
        ("kvviz.model.gguf_file", "gguf"),
    ),
}


def main() -> int:
    """Never comes back from the search: libFuzzer ends the process, with 0 or, after the input of
    a finding was written to the folder, 77."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("reader", choices=READERS)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--file", type=Path, help="read this input once, instead of a search")
    args = parser.parse_args()
    reader = READERS[args.reader]
    if args.file:
        guarded(reader, import_module(reader.module))(args.file.read_bytes())
        return 0
    if not util.find_spec("atheris"):
        print("Atheris is not installed: pip install atheris==3.0.0", file=sys.stderr)
        return 2
    import atheris

    with atheris.instrument_imports(include=list(reader.watched)):
        for name in (*reader.watched, reader.module):
            module = import_module(name)
    corpus = FOLDER / args.reader
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(reader.good(module)):
        (corpus / f"good-{number}").write_bytes(data)
    options = [f"-runs={args.inputs}", f"-seed={args.seed}", f"-max_len={LONGEST}",
               f"-rss_limit_mb={GIBIBYTES << 10}", f"-artifact_prefix={corpus}-found-",
               "-print_final_stats=1"]  # fmt: skip
    # Looked up when it is called: which one it is, is known once the search has begun
    mutator = _mutator(lambda data, longest: atheris.Mutate(data, longest))
    atheris.Setup(
        [sys.argv[0], *options, str(corpus)], guarded(reader, module), custom_mutator=mutator
    )
    atheris.Fuzz()
    return 0


def guarded(reader: Reader, module: Any) -> Callable[[bytes], None]:
    """The reader under the guard: a KvvizError is an answer, all else is a finding."""
    # Not above: these load what is to be instrumented
    from tests.fuzz.guard import watched
    from tests.fuzz.targets import TEMPORARY

    def one(data: bytes) -> None:
        extra = reader.extra + SLOWER
        watched(lambda: reader.call(module, data), len(data), may=TEMPORARY, extra=extra)

    return one


def _mutator(mutate: Callable[[bytes, int], bytes]) -> Callable[[bytes, int, int], bytes]:
    """Half of the changes are ours, which know numbers, fields and keys; half are libFuzzer's,
    which know the comparisons that the last inputs failed."""
    from tests.fuzz.damage import broken_text

    def change(data: bytes, longest: int, seed: int) -> bytes:
        if seed % 2:
            return mutate(data, longest)
        return broken_text(Random(seed), data)[:longest]

    return change


if __name__ == "__main__":
    sys.exit(main())
