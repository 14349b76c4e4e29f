"""Settings: one grammar, complete help, and nothing impossible gets in."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.config import Engine, Mix, RunConfig, parse_overrides
from kvviz.errors import ConfigError
from kvviz.workloads.presets import PRESETS, preset_config

SETTINGS = [(path, value, meta) for path, value, meta in RunConfig().walk()]
PATHS = [path for path, _, _ in SETTINGS]
RANGED = [(path, meta) for path, _, meta in SETTINGS if meta["low"] is not None]
CHOSEN = [(path, meta) for path, _, meta in SETTINGS if meta["choices"]]
KINDS = {path: type(value) for path, value, _ in SETTINGS}
# Settings that also depend on another one, which stays at its default here.
TIED = {"memory.slots", "memory.context"}
# Settings that take some of the numbers in their range only.
SPARSE = {"virtual.page_bytes": [1 << n for n in range(16, 22)]}


def flat(run: RunConfig) -> dict[str, Any]:
    return {path: value for path, value, _ in run.walk()}


@pytest.mark.parametrize(("path", "value", "meta"), SETTINGS, ids=PATHS)
def test_every_setting_explains_itself(path: str, value: object, meta: dict[str, Any]) -> None:
    """The command line or the page shows a setting without help, range or choices."""
    assert len(meta["help"]) > 10
    assert isinstance(meta["live"], bool)
    if isinstance(value, int | float) and not isinstance(value, bool):
        assert meta["low"] <= value <= meta["high"]
    assert (meta["low"] is None) == (meta["high"] is None)
    assert not meta["choices"] or value in meta["choices"]


def test_paths_are_the_grammar() -> None:
    """A setting that walk() leaves out can't be set, shown or compared."""
    sections = {"mix", "memory", "contiguous", "paged", "cells", "virtual", "engine"}
    run = RunConfig()
    inner = sum(len(dataclasses.fields(getattr(run, section))) for section in sections)
    assert len(PATHS) == len(set(PATHS)) == inner + len(dataclasses.fields(run)) - len(sections)


@pytest.mark.parametrize(("words", "expected"), [
    (["a.b=1"], {"a.b": "1"}),
    ([" a.b = 1 "], {"a.b": "1"}),
    (["a=b=c"], {"a": "b=c"}),
    (["a="], {"a": ""}),
    (["a=1", "b=2", "a=3"], {"a": "3", "b": "2"}),
    ([], {}),
])  # fmt: skip
def test_overrides(words: list[str], expected: dict[str, str]) -> None:
    """One grammar for command line, tests and links: a.b=value, the last one counts."""
    assert parse_overrides(words) == expected


@pytest.mark.parametrize("word", ["paged.block_size", "", "--dry", "paged.block_size:3"])
def test_word_that_is_no_override(word: str) -> None:
    """A typing error is taken for a setting, or the message does not show how to write one."""
    with pytest.raises(ConfigError, match=r"write a\.b=value, for example paged\.block_size=32"):
        parse_overrides([word])


@pytest.mark.parametrize("path", ["nope", "mix.nope", "mix", "block_size", "paged.block_size.x",
                                  "Paged.block_size", ""])  # fmt: skip
def test_unknown_name_lists_the_known(path: str) -> None:
    """A misspelt setting is ignored, or its writer is not told what there is."""
    with pytest.raises(ConfigError) as caught:
        RunConfig().replace({path: "1"})
    assert repr(path) in str(caught.value)
    assert all(known in str(caught.value) for known in PATHS)


@pytest.mark.parametrize(("path", "raw", "expected"), [
    ("paged.block_size", "32", 32),
    ("paged.block_size", 32.0, 32),
    ("mix.rate", "0.5", 0.5),
    ("mix.rate", 1, 1.0),
    ("dry", "yes", True),
    ("dry", "OFF", False),
    ("dry", True, True),
    ("seed", "7", 7),
    ("preset", "x", "x"),
])  # fmt: skip
def test_values_are_read_as_the_field_s_type(path: str, raw: object, expected: object) -> None:
    """A number from a link stays a string, or a whole one from JSON is refused."""
    found = flat(RunConfig().replace({path: raw}))[path]
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize(("path", "raw", "wanted"), [
    ("paged.block_size", "x", "a whole number"),
    ("paged.block_size", "1.5", "a whole number"),
    ("paged.block_size", 1.5, "a whole number"),
    ("paged.block_size", "", "a whole number"),
    ("paged.block_size", None, "a whole number"),
    ("mix.rate", "fast", "a number"),
    ("mix.rate", "", "a number"),
    ("dry", "maybe", "true or false"),
    ("paged.block_size", "0", "from 1 to 256"),
    ("paged.block_size", "257", "from 1 to 256"),
    ("mix.rate", "nan", "from 0.001 to 64"),
    ("mix.rate", math.nan, "from 0.001 to 64"),
    ("mix.rate", "inf", "from 0.001 to 64"),
    ("engine.temperature", "-inf", "from 0 to 4"),
    ("seed", "nan", "a whole number"),
    ("seed", "-1", "from 0 to"),
    ("contiguous.fit", "firts", "one of first, best, worst, next"),
    ("engine.queue", "", "one of strict, skip, refuse"),
])  # fmt: skip
def test_wrong_value_says_what_was_expected(path: str, raw: object, wanted: str) -> None:
    """A value out of range gets in, or the message leaves out the setting or what it takes."""
    with pytest.raises(ConfigError) as caught:
        RunConfig().replace({path: raw})
    assert str(caught.value).startswith(f"{path}={raw}: ")
    assert wanted in str(caught.value)


@pytest.mark.parametrize("raw", [math.nan, math.inf, -math.inf])
def test_float_that_is_no_number_for_a_whole_number(raw: float) -> None:
    """A widget or JSON that yields NaN ends the session with a stack trace."""
    with pytest.raises(ConfigError, match="a whole number was expected"):
        RunConfig().replace({"seed": raw})


def test_type_is_the_field_s_and_not_the_value_s() -> None:
    """A number that was once written without a point takes no fraction any more."""
    whole = RunConfig(engine=Engine(temperature=0), mix=Mix(rate=1))
    assert whole.replace({"engine.temperature": "0.5"}).engine.temperature == 0.5
    assert whole.replace({"mix.rate": 0.5}).mix.rate == 0.5


@pytest.mark.parametrize(("path", "meta"), RANGED, ids=[path for path, _ in RANGED])
def test_range_is_enforced_at_birth(path: str, meta: dict[str, Any]) -> None:
    """The bounds in the help are not those that are checked."""
    step = 1 if KINDS[path] is int else 1e-9
    for outside in (meta["low"] - step, meta["high"] + step):
        with pytest.raises(ConfigError, match=path.replace(".", r"\.")):
            RunConfig().replace({path: outside})
    if path not in TIED:
        for inside in (meta["low"], meta["high"]):
            assert flat(RunConfig().replace({path: inside}))[path] == inside


@pytest.mark.parametrize(("path", "meta"), CHOSEN, ids=[path for path, _ in CHOSEN])
def test_every_choice_is_taken(path: str, meta: dict[str, Any]) -> None:
    """A select box offers what the settings refuse."""
    for choice in meta["choices"]:
        changed = RunConfig().replace({path: choice, "mix.trace": "azure-chat-2023"})
        assert flat(changed)[path] == choice


def test_bad_section_by_hand_is_refused_too() -> None:
    """Only replace() checks, so that a config built in code can be impossible."""
    with pytest.raises(ConfigError, match=r"mix\.rate=nan"):
        RunConfig(mix=Mix(rate=math.nan))


@pytest.mark.parametrize(("changes", "message"), [
    ({"memory.slots": 1024, "memory.context": 2048}, "memory.context 2048 is more than the pool"),
    ({"dry": True, "engine.ends": "model"}, "a dry run has none"),
    ({"virtual.page_bytes": 100_000}, "a power of two was expected, for example 65536"),
    ({"engine.victim": "oldest", "paged.admission": "chunk"}, "the same requests for ever"),
    ({"mix.prompts": "trace"}, "needs mix.trace"),
    ({"mix.outputs": "trace"}, "needs mix.trace"),
    ({"mix.arrivals": "trace"}, "mix.arrivals=trace needs mix.trace"),
])  # fmt: skip
def test_contradictions(changes: dict[str, Any], message: str) -> None:
    """Two settings that can't both be true start a run that fails later."""
    with pytest.raises(ConfigError, match=message):
        RunConfig().replace(changes)


def test_changes_are_applied_together() -> None:
    """Two changes that are right only together are refused one after the other."""
    changed = RunConfig().replace({"memory.context": 9000, "memory.slots": 10000})
    assert (changed.memory.context, changed.memory.slots) == (9000, 10000)


def test_replace_leaves_the_original() -> None:
    """A config in use changes under the hands of its run."""
    base = RunConfig()
    assert base.replace({"paged.block_size": 32}).paged.block_size == 32
    assert base == RunConfig()
    assert base.replace({}) == base
    with pytest.raises(dataclasses.FrozenInstanceError):
        base.mix.rate = 2.0


def test_differences_split_live_from_restart() -> None:
    """The page restarts a run for nothing, or hands a running engine what it can't take."""
    base = RunConfig()
    other = base.replace({"mix.rate": 0.5, "contiguous.fit": "best", "paged.block_size": 32,
                          "seed": 9})  # fmt: skip
    assert base.differences(base) == ([], [])
    expected = (["mix.rate", "contiguous.fit"], ["paged.block_size", "seed"])
    assert base.differences(other) == other.differences(base) == expected


def test_what_needs_a_restart() -> None:
    """A setting that sizes the pool or seeds the run is said to be live, or the other way round."""
    restart = {path for path, _, meta in SETTINGS if not meta["live"]}
    assert restart == {"memory.slots", "memory.share", "memory.context",
                       "contiguous.allocator", "cells.mode", "cells.buffers",
                       "paged.block_size", "paged.null_block",
                       "paged.page_blocks", "paged.prefix_sharing", "virtual.page_bytes",
                       "engine.swap_slots", "engine.ends", "engine.temperature",
                       "engine.check_every", "seed", "dry", "lanes", "model"}  # fmt: skip


@given(st.data())
def test_json_round_trip(data: st.DataObject) -> None:
    """A config that is written down is another one when it is read again."""
    changes: dict[str, Any] = {"mix.trace": "azure-chat-2023"}
    for path, meta in RANGED:
        if path not in TIED and data.draw(st.booleans()):
            numbers = st.integers if KINDS[path] is int else st.floats
            anything = numbers(meta["low"], meta["high"])
            changes[path] = data.draw(st.sampled_from(SPARSE[path]) if path in SPARSE else anything)
    for path, meta in CHOSEN:
        changes[path] = data.draw(st.sampled_from(meta["choices"]))
    changes["dry"] = changes["engine.ends"] == "mix" and data.draw(st.booleans())
    if (changes["engine.victim"], changes["paged.admission"]) == ("oldest", "chunk"):
        changes["engine.victim"] = "youngest"  # that pair is refused
    run = RunConfig().replace(changes)
    assert RunConfig().replace(unnested(json.loads(run.as_json()))) == run
    words = [f"{path}={value}" for path, value in flat(run).items()]
    assert RunConfig().replace(parse_overrides(words)) == run


def unnested(raw: dict[str, Any]) -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}."""
    found = {}
    for name, value in raw.items():
        if isinstance(value, dict):
            found.update({f"{name}.{inner}": v for inner, v in value.items()})
        else:
            found[name] = value
    return found


@pytest.mark.parametrize("name", PRESETS)
def test_preset(name: str) -> None:
    """A preset names a setting that does not exist, or loses what was set before it."""
    base = RunConfig().replace({"seed": 5})
    run = preset_config(name, base)
    assert (run.preset, run.seed) == (name, 5)
    changed = {path for path, value in flat(run).items() if value != flat(base)[path]}
    assert changed - {"preset"} <= set(PRESETS[name].settings)
    assert PRESETS[name].title
    assert PRESETS[name].story.endswith(".")


def test_unknown_preset_lists_the_known() -> None:
    """A misspelt preset runs the default one."""
    with pytest.raises(ConfigError) as caught:
        preset_config("contol")
    assert all(name in str(caught.value) for name in PRESETS)
