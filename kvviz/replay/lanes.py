"""The lanes of a replay: `NAME=LANE,a.b=value,...`, a pool, and the engine of a real server."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from kvviz.caches.layouts import LANES, lane_config
from kvviz.config import RunConfig, parse_overrides
from kvviz.errors import ConfigError
from kvviz.workloads.lengths import mix_names
from kvviz.workloads.presets import PRESETS, preset_config

DEFAULT_LANES = ("contiguous", "paged")
# A server's limits, in place of the live page's, which are small enough to watch
SERVER = {
    "engine.token_budget": 8192,
    "engine.max_running": 1024,
    "engine.queue_limit": 1 << 16,
    "engine.check_every": 0,
    "dry": True,
}

_NAME = re.compile(r"[\w .+-]{1,40}")


class LaneSpec(NamedTuple):
    """`lane` is one of LANES, `layout` the layout behind it, `config` what holds in it."""

    name: str
    lane: str
    layout: str
    config: RunConfig


def base_config(slots: int, context: int, settings: Iterable[str] = ()) -> RunConfig:
    """The settings that all lanes share: the pool, a server's engine, then `settings`."""
    pool = {"memory.slots": slots, "memory.context": context}
    return RunConfig().replace({**SERVER, **pool, **parse_overrides(settings)})


def lane_specs(words: Iterable[str], base: RunConfig) -> list[LaneSpec]:
    """`paged`, or `small=paged,paged.block_size=8`. Raises ConfigError for a name that is not
    there or stands twice."""
    specs: list[LaneSpec] = []
    for word in words or DEFAULT_LANES:
        head, *settings = word.split(",")
        name, named, lane = (part.strip() for part in head.partition("="))
        lane = lane if named else name
        if lane not in LANES:
            raise ConfigError(
                f"lane {word!r}: there is no {lane!r}. Choose from {', '.join(LANES)}; write "
                "NAME=LANE,a.b=value for one with settings of its own."
            )
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"lane {word!r}: a name of up to 40 letters, digits, blanks and . + - was expected."
            )
        changes = parse_overrides(settings)
        if name in {spec.name for spec in specs}:
            raise ConfigError(f"two lanes are called {name!r}: write NAME={lane} for one.")
        config = lane_config(lane, base).replace(changes)
        specs.append(LaneSpec(name, lane, LANES[lane].layout, config))
    return specs


def base_of(
    source: str, slots: int | None, context: int, settings: Iterable[str] = ()
) -> RunConfig:
    """As `base_config`; a preset brings its own pool (unless `slots` is given) and engine."""
    if not is_preset(source):
        assert slots is not None, "only a preset has a pool of its own"
        return base_config(slots, context, settings)
    own = {"dry": True, "engine.check_every": 0}
    if slots is not None:
        own["memory.slots"] = slots
    return preset_config(source).replace({**own, **parse_overrides(settings)})


def is_preset(source: str) -> bool:
    """Is this a preset and no fitted mix? A mix of the same name is replayed undivided."""
    return source in PRESETS and source not in mix_names()
