"""Named starting points. Each is a dict of settings over the defaults, and one sentence."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvviz.config import RunConfig
from kvviz.errors import ConfigError


class Preset(NamedTuple):
    title: str
    story: str
    settings: dict[str, Any]


PRESETS: dict[str, Preset] = {
    "chat-and-documents": Preset(
        "Chat and long documents",
        "Short chats with a long document now and then: the long ones find no hole.",
        {},
    ),
    "azure-chat-2023": Preset(
        "Azure chat 2023 (fitted)",
        "Lengths fitted to Azure's public conversation trace of 2023, scaled to the context.",
        {
            "mix.prompts": "trace",
            "mix.outputs": "trace",
            "mix.trace": "azure-chat-2023",
            "mix.long_share": 0.0,
            "mix.rate": 0.36,
        },
    ),
    "bursts": Preset(
        "Bursts",
        "The same mix in bursts: the pool fills at once and thins out unevenly.",
        {"mix.arrivals": "bursts", "mix.burst": 16, "mix.rate": 0.19},
    ),
    "reserve-max": Preset(
        "Reserve for the longest answer",
        "Contiguous as the first serving systems did it: room for the whole context, used or not.",
        {"contiguous.reservation": "max"},
    ),
    "grow-in-place": Preset(
        "Grow token by token",
        "Contiguous without reservation: a request grows in place, moves, or is preempted.",
        {"contiguous.reservation": "exact"},
    ),
    "compaction": Preset(
        "Compact on refusal",
        "Contiguous that slides its regions together when a request finds no hole: look at "
        "the slots moved.",
        {"contiguous.compaction": "on_refusal"},
    ),
    "control": Preset(
        "Control: nothing can fragment",
        "All requests are equal and the pool is a multiple of them: every gauge must read 0.",
        {
            "mix.arrivals": "closed",
            "mix.concurrency": 16,
            "mix.prompts": "fixed",
            "mix.prompt_mean": 256,
            "mix.outputs": "fixed",
            "mix.output_mean": 257,
            "mix.long_share": 0.0,
            "memory.slots": 8192,
            "memory.context": 2048,
        },
    ),
}
DEFAULT_PRESET = "chat-and-documents"


def preset_config(name: str, base: RunConfig | None = None) -> RunConfig:
    """The defaults (or `base`) with a preset's settings. Raises ConfigError if unknown."""
    if name not in PRESETS:
        raise ConfigError(f"no preset {name!r}. There is: {', '.join(PRESETS)}.")
    return (base or RunConfig()).replace({**PRESETS[name].settings, "preset": name})
