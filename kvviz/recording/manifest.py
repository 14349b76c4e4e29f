"""What a recording says of itself: settings, where and when it ran, and what the file holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from kvviz import __version__
from kvviz.config import RunConfig
from kvviz.errors import ConfigError, RecordingError
from kvviz.recording.schema import FORMAT
from kvviz.workloads.stream import Scaling

KIND = "kvviz recording"
_LONGEST = 400  # characters of a name or text that a page shows


@dataclass(frozen=True)
class Manifest:
    """`every`: steps from one recorded snapshot to the next. `dropped`: steps of the series that
    were not kept, by lane. `report`: the numbers of the whole run, as `kvviz run --json` writes
    them. `when` is UTC, ISO 8601. `shown`: the step to open it at, -1 for the last one.
    `changes`: steps at which a run was changed by hand."""

    config: RunConfig
    device: str
    machine: str
    when: str
    every: int
    recorded: int
    stream_hash: str
    scaling: Scaling
    dropped: dict[str, int]
    report: dict[str, Any]
    shown: int = -1
    changes: tuple[int, ...] = ()
    kvviz: str = __version__
    members: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def lanes(self) -> tuple[str, ...]:
        return self.config.lane_names

    def as_json(self) -> str:
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        plain |= {"config": self.config.as_dict(), "scaling": asdict(self.scaling)}
        return json.dumps({"kind": KIND, "format": FORMAT, **plain}, indent=1, allow_nan=False)


def read_manifest(text: bytes) -> Manifest:
    """Raises RecordingError with what is wrong; ValueError for what is no JSON."""
    found = json.loads(text)
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise RecordingError("The file is no recording of kvviz. Save one with --record.")
    version = _of(found, "format", int)
    if version > FORMAT:
        raise RecordingError(
            f"The recording was written by kvviz {found.get('kvviz', '?')} in format {version}; "
            f"this kvviz {__version__} reads up to format {FORMAT}. Update kvviz."
        )
    scaling = _of(found, "scaling", dict)
    return Manifest(
        config=_config(_of(found, "config", dict)),
        **{name: _of(found, name, str) for name in ("device", "machine", "when", "stream_hash")},
        **{name: _of(found, name, int) for name in ("every", "recorded")},
        scaling=Scaling(**{f.name: _of(scaling, f.name, int) for f in fields(Scaling)}),
        dropped={lane: _of(found["dropped"], lane, int) for lane in _of(found, "dropped", dict)},
        report=_of(found, "report", dict),
        shown=_of({"shown": -1, **found}, "shown", int),
        changes=_steps(found.get("changes", [])),
        kvviz=_of(found, "kvviz", str),
        members=_of(found, "members", dict),
    )


def _of(where: Mapping[str, Any], name: str, kind: type) -> Any:
    value = where.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise RecordingError(f"The recording's manifest has no {name} of the right kind.")
    if isinstance(value, str) and len(value) > _LONGEST:
        raise RecordingError(f"The recording's {name} is longer than {_LONGEST} characters.")
    return value


def _steps(found: Any) -> tuple[int, ...]:
    if not isinstance(found, list) or not all(type(step) is int for step in found):
        raise RecordingError("The recording's manifest has no changes of the right kind.")
    return tuple(found)


def _config(found: Mapping[str, Any]) -> RunConfig:
    """Settings that this kvviz lacks are an error: they may be what the run is about."""
    flat: dict[str, Any] = {}
    for name, value in found.items():
        inner = value if isinstance(value, dict) else None
        flat |= {name: value} if inner is None else {f"{name}.{k}": v for k, v in inner.items()}
    try:
        return RunConfig().replace(flat)
    except ConfigError as error:
        raise RecordingError(f"The recording's settings can't be: {error}") from error
