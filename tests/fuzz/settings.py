"""Hostile settings: of the command line, of the address, and of the live channel."""

from __future__ import annotations

import contextlib
import io
import json
from functools import lru_cache
from random import Random
from typing import Any

import kvviz.model.kernels  # numba looks for its caches with the first import
import kvviz.replay.kernels  # noqa: F401
from kvviz.build import build_lanes
from kvviz.cli import main
from kvviz.config import RunConfig, parse_overrides
from kvviz.engine.lanes import Lanes
from kvviz.errors import KvvizError
from kvviz.live.past import Past
from kvviz.replay.lanes import base_of, lane_specs
from kvviz.sweeps.grid import Grid, parse_axes, parse_seeds
from kvviz.ui.asked import Asked
from tests.fuzz.damage import NUMBERS, WORDS, broken_value, odd, one_of
from tests.fuzz.files import Input
from tests.helpers import small

_KNOWN = list(RunConfig.types())
_CHOICES = {path: meta["choices"] for path, _, meta in RunConfig().walk() if meta["choices"]}


def word(random: Random) -> str:
    """What may stand behind `=`: numbers and words, few of them of use."""
    return one_of(random, [str(one_of(random, NUMBERS)) if abs(random.random()) < 0.5 else
                           one_of(random, WORDS), str(random.randrange(300))])  # fmt: skip


def pair(random: Random) -> str:
    path = one_of(random, _KNOWN) if random.randrange(10) else one_of(random, WORDS)
    if path in _CHOICES and random.randrange(3):
        return f"{path}={one_of(random, _CHOICES[path])}"
    return f"{path}={word(random)}" if random.randrange(20) else one_of(random, WORDS)


def settings(random: Random) -> Input:
    """`--set` and the sweep's and the replay's own text fields."""
    pairs = [pair(random) for _ in range(1 + random.randrange(4))]
    axes = [pair(random) for _ in range(random.randrange(3))]
    seeds = one_of(random, ["1-3", "1,2", "5-1", "0-99999999999999", "-1", "1--1", word(random),
                            f"1-{word(random)}", f"{word(random)}-{word(random)}"])  # fmt: skip
    lanes = [one_of(random, ["paged", f"a=paged,{pair(random)}", f"{word(random)}=contiguous",
                             f"b=cells,{pair(random)},{pair(random)}", word(random)])
             for _ in range(random.randrange(3))]  # fmt: skip
    given = (pairs, axes, seeds, lanes)
    return Input(len(json.dumps(given)), lambda: _settings(*given), given)


def _settings(pairs: list[str], axes: list[str], seeds: str, lanes: list[str]) -> None:
    """Each field for itself: one that is wrong must not hide the others."""
    calls = (
        lambda: _built(RunConfig().replace(parse_overrides(pairs))),
        lambda: Grid(RunConfig(), parse_axes(axes), (1,)).places[:1],
        lambda: parse_seeds(seeds),
        lambda: lane_specs(lanes, base_of("", 4096, 512)),
    )
    refused: KvvizError | None = None
    for call in calls:
        try:
            call()
        except KvvizError as error:
            if refused is None or not str(error).isprintable():
                refused = error
    if refused is not None:
        raise refused


def _built(config: RunConfig) -> None:
    if config.memory.slots > 1 << 13 or config.model:
        return
    lanes = build_lanes(config.replace({"dry": True, "engine.ends": "mix"}), history=16)
    try:
        for _ in range(3):
            lanes.step()
    finally:
        lanes.close()


_OPTIONS = {
    "run": ("--steps", "--preset", "--set", "--json", "--record", "--record-every"),
    "replay": ("--model", "--gpu-memory", "--slots", "--lane", "--set", "--requests", "--rate",
               "--step-ms", "--context", "--unit", "--json"),
    "scenario": ("--json",),
    "trace": ("--unit", "--set-aside", "--json"),
    "capacity": ("--model", "--config", "--gpu-memory", "--share", "--weights", "--params",
                 "--weights-gib", "--kv-dtype", "--tp", "--block-size", "--max-len",
                 "--batch-tokens", "--activation-gib", "--side-gib", "--requests", "--seed"),
    "report": ("--steps", "--preset", "--out"),
    "sweep": ("--grid", "--preset", "--lanes", "--seeds", "--steps", "--set", "--backend"),
    "bench": ("--json",),
    "presets": (),
}  # fmt: skip
_PLACED = {"replay", "scenario", "trace", "report", "bench"}
# No path of this machine: that a command reads what it is told to is no finding
_SOURCES = [w for w in WORDS if not w.startswith(("-", "/", "..", "C:", "file:"))]
_FILES = {"--json", "--record", "--set-aside", "--out", "--config", "--backend"}


def command(random: Random) -> Input:
    """A command line with odd values. Nothing is written, and nothing long is begun: its numbers
    of steps and requests are small, or too large."""
    name = one_of(random, list(_OPTIONS))
    words = [name]
    if name in _PLACED:
        words.append(one_of(random, _SOURCES))
    if name in ("run", "report"):
        words += ["--dry", "--steps", "2"]
    if name == "capacity" and random.randrange(3):
        words += ["--model", "Llama-3.1-8B"]
    for option in (one_of(random, _OPTIONS[name] or ("--x",)) for _ in range(random.randrange(4))):
        words += [option, _value(random, option)]
    if name == "sweep":
        words += ["--steps", "0"]  # refused at the end, after all else was looked at
    return Input(len(json.dumps(words)), lambda: _command(words), words)


def _value(random: Random, option: str) -> str:
    if option in ("--set", "--grid"):
        return pair(random)
    if option in _FILES:
        return one_of(random, ["/no/such/folder/x", "a\0b", "/dev/full/x"])
    if option == "--steps":
        return one_of(random, ["1", "0", "-1", "x", "9" * 30, "1e3", "NaN"])
    if option == "--requests":
        return one_of(random, ["10", "0", "-1", "x", "9" * 30, "NaN"])
    return word(random)


def _command(words: list[str]) -> None:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(words)
        except SystemExit as end:  # argparse
            status = end.code
            assert status in (0, 2), status
            return
    said = err.getvalue()
    assert status in (0, 1, 2), status
    assert "Traceback" not in said
    if status == 2:
        assert said.startswith("kvviz: ") and said.count("\n") == 1, said[:300]
        said.encode()


@lru_cache(maxsize=1)
def _lanes() -> tuple[Lanes, Past]:
    lanes = build_lanes(small({"dry": True, "mix.rate": 0.8}), history=64)
    past = Past(list(lanes.engines))
    for _ in range(40):
        lanes.step()
        past.add(lanes)
    return lanes, past


_ORDERS: dict[str, Any] = {
    "ready": True, "theme": "dark", "colour": "state", "visible": True, "look": 3, "do": "pause",
    "select": 4, "hole": ["paged", 3], "log": {"kind": "refuse", "verdict": "", "request": 3},
    "pin": 3, "run": "paged", "finish": 3, "add": 100,
}  # fmt: skip


def orders(random: Random) -> Input:
    """What a browser may send over the live channel."""
    found = {name: _ORDERS[name] for name in random.sample(sorted(_ORDERS), 4)}
    value = broken_value(random, found)
    value = value if isinstance(value, dict) else {one_of(random, list(_ORDERS)): odd(random)}
    text = json.dumps(value)
    return Input(len(text), lambda: obey(json.loads(text)), text)


def obey(words: dict[str, Any]) -> None:
    lanes, past = _lanes()
    asked = Asked()
    asked.obey(words)
    with contextlib.suppress(KeyError, ValueError):  # the viewer's channel takes these for "gone"
        json.dumps(asked.copy().answer(lanes, past, past.last))
