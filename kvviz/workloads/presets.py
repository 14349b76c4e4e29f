"""Named starting points. Each is a dict of settings over the defaults, and one sentence."""

from __future__ import annotations

from typing import Any, NamedTuple

from kvviz.config import RunConfig
from kvviz.errors import ConfigError


class Preset(NamedTuple):
    title: str
    story: str
    settings: dict[str, Any]


def _fitted(
    title: str, story: str, mix: str, rate: float, arrivals: str = "trace", **more: Any
) -> Preset:
    """All of a fitted mix: lengths, their rank correlation and, where it has them, its gaps."""
    settings = {
        "mix.prompts": "trace",
        "mix.outputs": "trace",
        "mix.trace": mix,
        "mix.long_share": 0.0,
        "mix.rate": rate,
        "mix.arrivals": arrivals,
    }
    return Preset(title, story, settings | {_SHORT[name]: value for name, value in more.items()})


_SHORT = {
    "divide": "mix.divide",
    "context": "memory.context",
    "token_budget": "engine.token_budget",
}

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
    "azure-code-2023": _fitted(
        "Azure code 2023 (fitted)",
        "Code completion: long prompts, short answers, and traffic that comes and goes; halved.",
        "azure-code-2023",
        0.2,
        divide=2,
        context=4096,
        token_budget=512,
    ),
    "mooncake-chat": _fitted(
        "Mooncake chat (fitted)",
        "Very long prompts, a sixteenth of the trace's: a few requests fill the pool.",
        "mooncake-chat",
        0.25,
        divide=16,
        context=4096,
    ),
    "mooncake-synthetic": _fitted(
        "Mooncake synthetic (fitted)",
        "The longer the prompt, the shorter the answer: sizes far apart, a sixteenth of the trace.",
        "mooncake-synthetic",
        0.4,
        divide=16,
        context=4096,
        token_budget=512,
    ),
    "sharegpt-chat": _fitted(
        "ShareGPT chat (fitted)",
        "Short prompts, long answers; the data have no arrivals, so Poisson is assumed.",
        "sharegpt-chat",
        0.12,
        arrivals="poisson",
    ),
    "arxiv-summarize": _fitted(
        "arXiv summaries (fitted)",
        "Long prompts of like size, short summaries; no arrivals in the data, Poisson is assumed.",
        "arxiv-summarize",
        0.05,
        arrivals="poisson",
    ),
    "longform-creation": _fitted(
        "Long answers (fitted)",
        "Answers longer than the prompts; the longer the prompt, the longer the answer.",
        "longform-creation",
        0.04,
    ),
    "servegen-deepseek-r1": _fitted(
        "Reasoning, DeepSeek-R1 (fitted)",
        "Reasoning traffic: answers longer than prompts, tails of both far out; a sixteenth.",
        "servegen-deepseek-r1",
        0.2,
    ),
    "servegen-m-large": _fitted(
        "Cloud chat, large model (fitted)",
        "A cloud's large model, many clients mixed: a third of the answers are of few tokens.",
        "servegen-m-large",
        0.4,
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
    "compact-a-little": Preset(
        "Compact a little each step",
        "Contiguous that moves 256 slots a step, asked or not: no request waits for a slide.",
        {"contiguous.compaction": "steady"},
    ),
    "buddy": Preset(
        "Buddy allocation",
        "Regions of powers of two beside free lists: what rounding wastes, and what fits nobody.",
        {"lanes": "buddy,contiguous"},
    ),
    "llama-cpp": Preset(
        "Slots as in llama.cpp",
        "Four equal buffers beside one buffer of cells that any request may take.",
        {
            "lanes": "split,scattered",
            "memory.context": 2048,
            "mix.rate": 0.06,
        },
    ),
    "system-prompts": Preset(
        "Shared system prompts",
        "Most requests begin with one of four system prompts: shared blocks, and copies of them.",
        {
            "lanes": "paged,prefix",
            "mix.prefix_share": 0.8,
            "mix.prefix_tokens": 256,
            "mix.prompt_mean": 320,
            "mix.rate": 0.24,
        },
    ),
    "parallel-samples": Preset(
        "Four answers for each prompt",
        "Paged shares the prompt's blocks among the answers and copies on write; contiguous copies "
        "all of it.",
        {"mix.samples": 4, "mix.rate": 0.06},
    ),
    "swap": Preset(
        "Swap out instead of computing anew",
        "Requests grow token by token; a victim's K and V go to host memory and come back.",
        {"contiguous.reservation": "exact", "engine.preemption": "swap", "mix.rate": 0.26},
    ),
    "virtual": Preset(
        "Mapped on demand",
        "A range of addresses for each request, memory mapped by the page, beside blocks.",
        {"lanes": "virtual,paged"},
    ),
    "chat-model": Preset(
        "A chat model answers",
        "SmolLM2 135M answers real questions and stops when it has done so.",
        {
            "model": "smollm2",
            "engine.ends": "model",
            "engine.token_budget": 64,
            "memory.slots": 4096,
            "memory.context": 1024,
            "mix.prompt_mean": 96,
            "mix.output_mean": 160,
            "mix.long_prompt": 512,
            "mix.rate": 0.12,
        },
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
