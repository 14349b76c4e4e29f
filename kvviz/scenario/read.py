"""From the text of a scenario file to a Scenario. See docs/scenarios.md for the format."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from kvviz.caches.layouts import LAYOUTS
from kvviz.config import Engine, Memory, RunConfig
from kvviz.errors import ConfigError
from kvviz.scenario.fields import Field
from kvviz.scenario.parts import OPS, Job, Op, Scenario
from kvviz.scenario.text import parse

MAX_CAPACITY = 1 << 24
MAX_UNITS = 1 << 20  # blocks in a pool: each is a row of every map
MAX_OPS = 100_000
MAX_REQUESTS = 10_000
MAX_STEPS = 1_000_000
DEFAULT_STEPS = 100_000
UNLIMITED = 1 << 30

_TOP = ("title", "story", "capacity", "blocks", "layout", "max_len")
_OF_OPS = (*_TOP, "ops")
_OF_REQUESTS = (*_TOP, "requests", "scheduler", "max_steps")
_SCHEDULER = ("queue", "victim", "chunk", "token_budget", "max_running", "preemption", "swap_slots")
_JOB = (
    "arrive", "prompt", "output", "limit", "samples", "priority", "parked", "output_known", "count",
)  # fmt: skip


@dataclass(frozen=True)
class _Sizes(RunConfig):
    """Settings whose sizes this reader has checked: a scenario's pool may be tiny."""

    def __post_init__(self) -> None:
        pass


def layout_keys(kind: str) -> dict[str, str]:
    """What a file may set of a layout: {key: path of the setting}."""
    paths = [path for path in RunConfig.types() if path.startswith(f"{kind}.")]
    return {path.partition(".")[2]: path for path in paths}


def read(source: str | bytes) -> Scenario:
    """Raises ScenarioError, with line, field and what was expected, for anything else than a
    scenario."""
    text, value = parse(source)
    file = Field(text, value)
    file.keys(tuple(dict.fromkeys(_OF_OPS + _OF_REQUESTS)), "a scenario")
    if file.has("ops") == file.has("requests"):
        file.fail("a scenario has either ops or requests.")
    file.keys(_OF_OPS if file.has("ops") else _OF_REQUESTS, "a scenario")
    layout = file.at("layout")
    name, settings = _layout(layout)
    capacity = _capacity(file, _block_size(name, settings))
    config = _config(file, layout, settings, capacity)
    max_len = file.at("max_len").whole(1, MAX_CAPACITY) if file.has("max_len") else 0
    steps = file.at("max_steps").whole(1, MAX_STEPS) if file.has("max_steps") else DEFAULT_STEPS
    return Scenario(
        title=file.at("title").line(120, empty=True) if file.has("title") else "",
        story=file.at("story").line(600, empty=True) if file.has("story") else "",
        layout=name,
        config=config,
        max_len=max_len,
        max_steps=steps,
        ops=_ops(file.at("ops")) if file.has("ops") else None,
        jobs=_jobs(file.at("requests"), steps, max_len) if file.has("requests") else None,
    )


def _layout(field: Field) -> tuple[str, dict[str, Any]]:
    """(name of the layout, settings by path)."""
    if not isinstance(field.value, dict):
        field.keys((), "a layout")
    name = field.at("kind").choice(tuple(LAYOUTS))
    keys = layout_keys(name)
    field.keys(("kind", *keys), "a layout")
    settings = {path: _setting(field.at(k), path) for k, path in keys.items() if field.has(k)}
    return name, settings


def _setting(field: Field, path: str) -> Any:
    """A value of the setting's type, within its bounds."""
    kind = RunConfig.types()[path]
    meta = next(meta for other, _, meta in RunConfig().walk() if other == path)
    if kind is bool:
        return field.truth()
    if kind is str:
        return field.choice(tuple(meta["choices"])) if meta["choices"] else field.line(120)
    if kind is float:
        value: float = field.number()
        if meta["low"] is not None and not meta["low"] <= value <= meta["high"]:
            field.expected(f"a number from {meta['low']} to {meta['high']}")
        return value
    low, high = meta["low"], meta["high"]
    return field.whole(*((0, UNLIMITED) if low is None else (int(low), int(high))))


def _block_size(name: str, settings: dict[str, Any]) -> int | None:
    """None: the layout has no blocks."""
    path = f"{name}.block_size"
    default = {at: value for at, value, _ in RunConfig().walk()}.get(path)
    return settings.get(path, default)


def _capacity(file: Field, grain: int | None) -> int:
    if file.has("blocks") == file.has("capacity"):
        file.fail("give the pool's size once: capacity (in slots) or blocks.")
    if file.has("capacity"):
        capacity = file.at("capacity").whole(1, MAX_CAPACITY)
    elif grain is None:
        file.at("blocks").fail("this layout has no blocks. Give capacity, in slots.")
    else:
        capacity = grain * file.at("blocks").whole(1, MAX_CAPACITY // grain)
    if grain is not None and not 1 <= capacity // grain <= MAX_UNITS:
        file.at("capacity" if file.has("capacity") else "blocks").fail(
            f"{capacity:,} slots in blocks of {grain} are {capacity // grain:,} blocks; "
            f"1 to {MAX_UNITS:,} were expected."
        )
    return capacity


def _config(file: Field, layout: Field, settings: dict[str, Any], capacity: int) -> RunConfig:
    """Checked as a live run's settings are, as far as its bounds reach; then with true sizes."""
    bounds = {path: meta for path, _, meta in RunConfig().walk()}["memory.slots"]
    slots = int(min(max(capacity, bounds["low"]), bounds["high"]))
    sizes = {"memory.slots": slots, "memory.context": min(slots, RunConfig().memory.context)}
    try:
        checked = RunConfig().replace(sizes | settings)
    except ConfigError as error:
        layout.fail(str(error))
    parts = {name: getattr(checked, name) for name in RunConfig.__dataclass_fields__}
    parts["memory"] = Memory(slots=capacity, context=capacity)
    parts["engine"] = _engine(file.at("scheduler")) if file.has("scheduler") else _unlimited()
    return _Sizes(**parts)


def _unlimited() -> Engine:
    return Engine(token_budget=UNLIMITED, max_running=UNLIMITED, queue_limit=UNLIMITED)


def _engine(field: Field) -> Engine:
    field.keys(_SCHEDULER, "settings of the scheduler")
    return replace(
        _unlimited(),
        **{key: _setting(field.at(key), f"engine.{key}") for key in _SCHEDULER if field.has(key)},
    )


def _ops(field: Field) -> tuple[Op, ...]:
    ops = tuple(_op(each) for each in field.items(MAX_OPS))
    total = sum(op.single_ops for op in ops)
    if total > MAX_OPS:
        field.fail(f"with every repeat, {total:,} operations; {MAX_OPS:,} are done at most.")
    return ops


def _op(field: Field) -> Op:
    """["allocate", "a", 1024], and so on."""
    given = list(field.items(8))
    if not given:
        field.expected(f"an operation like {_grammar('allocate')}")
    kind = given[0].choice(tuple(OPS))
    if len(given) - 1 != len(OPS[kind]):
        field.expected(f"{_grammar(kind)}")
    if kind == "repeat":
        times = given[1].whole(1, MAX_OPS)
        inner = tuple(_op(each) for each in given[2].items(MAX_OPS))
        if not inner:
            given[2].expected("at least one operation")
        return Op(kind, times=times, inner=inner)
    if kind == "books":
        used, free, cached = (each.whole(0, 1 << 40) for each in given[1:])
        return Op(kind, books=(used, free, cached))
    parts: dict[str, Any] = {}
    for argument, each in zip(OPS[kind], given[1:], strict=True):
        parts[argument] = each.line(64) if argument == "name" else each.whole(1, MAX_CAPACITY)
    return Op(kind, **parts)


def _grammar(kind: str) -> str:
    return "[" + ", ".join([f'"{kind}"', *OPS[kind]]) + "]"


def _jobs(field: Field, steps: int, max_len: int) -> tuple[Job, ...]:
    jobs: list[Job] = []
    for each in field.items(MAX_REQUESTS):
        each.keys(_JOB, "a request")
        count = each.at("count").whole(1, MAX_REQUESTS) if each.has("count") else 1
        job = _job(each, steps)
        if max_len and job.prompt + job.limit - 1 > max_len:
            each.fail(
                f"prompt + limit - 1 = {job.prompt + job.limit - 1:,} is more than max_len "
                f"{max_len:,}. Shorten it, or raise max_len."
            )
        if len(jobs) + count > MAX_REQUESTS:
            each.fail(f"more than {MAX_REQUESTS:,} requests, counts included.")
        jobs += [job] * count
    return tuple(jobs)


def _job(field: Field, steps: int) -> Job:
    def whole(key: str, default: int | None, low: int, high: int) -> int:
        if default is not None and not field.has(key):
            return default
        return field.at(key).whole(low, high)

    def truth(key: str, default: bool) -> bool:
        return field.at(key).truth() if field.has(key) else default

    output = whole("output", None, 1, MAX_CAPACITY)
    return Job(
        arrive=whole("arrive", 0, 0, steps),
        prompt=whole("prompt", None, 1, MAX_CAPACITY),
        output=output,
        limit=whole("limit", output, output, MAX_CAPACITY),
        samples=whole("samples", 1, 1, 64),
        priority=whole("priority", 0, -1000, 1000),
        parked=truth("parked", False),
        output_known=truth("output_known", True),
    )
