"""Decode speed of each lane beside transformers, same weights, same prompts, same tokens out.

The shipped model: 32 sequences, prompts of 128 to 448 tokens, 64 tokens generated. SmolLM2: 16
sequences, prompts of 64 to 192, 32 generated. Greedy, one thread for all. Prefill is taken out:
ours is timed from the step in which all sequences decode, transformers' as the difference between
a long and a short generation.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from kvviz.bench.floors import rate, read_bandwidth
from kvviz.bench.result import LeftOut, Measured
from kvviz.caches.budget import PoolBudget
from kvviz.caches.layouts import LAYOUTS
from kvviz.caches.store import KVStore
from kvviz.config import RunConfig
from kvviz.engine.engine import Engine
from kvviz.engine.recorder import Recorder
from kvviz.model.forward import ModelForward
from kvviz.model.known import KNOWN, folder_of
from kvviz.model.prompts import Prompts, prompts_for
from kvviz.model.serving import ServingModel, load_serving
from kvviz.records import Request
from kvviz.shapes import ModelShape


class Case(NamedTuple):
    """One measurement: prompts from `shortest` to `longest`; `rivals` are ways of transformers
    to generate, each with the ratio that is aimed at."""

    model: str
    batch: int
    shortest: int
    longest: int
    new_tokens: int
    rounds: int
    slots: int
    rivals: dict[str, float]


SMALL = Case("", 32, 128, 448, 64, 3, 32_768, {"static cache": 1.5, "continuous batching": 5.0})
CHAT = Case("smollm2", 16, 64, 192, 32, 1, 4096, {"dynamic cache": 1.0, "static cache": 1.0})

COMPARED = ("contiguous", "paged")


def bench_engine() -> list[Measured]:
    """The shipped model: ratios to transformers where it is installed, else the lanes alone."""
    return _measure(SMALL)


def bench_chat() -> list[Measured]:
    """The same for SmolLM2. Raises LeftOut where its package is not installed."""
    if missing := KNOWN[CHAT.model].missing():
        raise LeftOut(f"SmolLM2 is not here ({missing})")
    return _measure(CHAT)


def _measure(case: Case) -> list[Measured]:
    folder = folder_of(case.model)
    model = load_serving(folder, device=torch.device("cpu"))
    prompts = prompts_for(model.tokenizer)
    lengths = np.linspace(case.shortest, case.longest, case.batch)
    requests = [
        Request(i, 0, int(n), case.new_tokens, case.new_tokens, text=17 * i)
        for i, n in enumerate(lengths)
    ]
    runs: dict[str, list[float]] = {name: [] for name in COMPARED}
    tokens: dict[str, list[bytes]] = {}
    for _ in range(case.rounds):  # the lanes take turns, so that a slow minute hits both
        for name in COMPARED:
            step, tokens[name] = _lane(name, model, prompts, requests, case.slots)
            runs[name].append(step)
    steps = {name: statistics.median(times) for name, times in runs.items()}
    floor, floor_of = _floor(model.shape, sum(r.prompt_len + r.output_len / 2 for r in requests))
    found = [
        Measured(
            f"{name}: ms a decode step, batch {case.batch}",
            ms,
            "ms",
            floor=floor,
            floor_of=floor_of,
        )
        for name, ms in steps.items()
    ]
    found.append(
        Measured(
            "paged step / contiguous step", steps["paged"] / steps["contiguous"], "x", at_most=1.3
        )
    )
    found.append(
        Measured(
            "sequences with equal tokens, contiguous and paged",
            _equal(*tokens.values()),
            f"of {case.batch}",
            at_least=case.batch,
        )
    )
    if find_spec("transformers"):
        texts = [prompts(r) for r in requests]
        found += _against_transformers(case, folder, steps, tokens["contiguous"], texts)
    else:
        print("  left out: transformers is not installed (pip install transformers)")
    return found


def _floor(shape: ModelShape, tokens: float) -> tuple[float, str]:
    """Milliseconds to read all weights and the K and V of so many tokens once, and the words."""
    heads = shape.num_attention_heads + shape.num_key_value_heads
    attention = 2 * heads * shape.head_dim * shape.hidden_size
    mlp = 3 * shape.hidden_size * shape.intermediate_size
    weights = shape.num_hidden_layers * (attention + mlp) + shape.vocab_size * shape.hidden_size
    count_bytes = int(4 * weights + tokens * shape.slot_bytes(4))
    bandwidth = read_bandwidth(count_bytes)
    words = f"{count_bytes / 1e6:,.0f} MB of weights, K and V read once at {rate(bandwidth)}"
    return count_bytes / bandwidth * 1e3, words


def _equal(ours: list[bytes], theirs: list[bytes]) -> int:
    return sum(a == b for a, b in zip(ours, theirs, strict=True))


def _lane(
    name: str, model: ServingModel, prompts: Prompts, requests: list[Request], slots: int
) -> tuple[float, list[bytes]]:
    """(ms a step in which all sequences decode, generated tokens of each)"""
    config = RunConfig().replace(
        {
            "memory.slots": slots,
            "engine.token_budget": 4096,
            "engine.max_running": len(requests),
            "engine.temperature": 0,
            "engine.check_every": 0,
        }
    )
    layout = LAYOUTS[name](config)
    store = KVStore(
        model.shape, config.memory.slots, model.device, budget=PoolBudget.of_host(), poison=False
    )
    forward = ModelForward(
        model, store, layout, prompts=prompts, temperature=0, seed=0, bans_end=False
    )
    engine = Engine(name, layout, forward, config, store.slot_bytes, Recorder(256))
    engine.submit(requests)
    times = []
    while not engine.idle:
        before = engine.generated
        began = time.perf_counter()
        engine.step()
        if engine.generated - before == engine.outstanding == len(requests):
            times.append(time.perf_counter() - began)
    engine.close()
    return statistics.median(times[1:]) * 1e3, [engine.outputs[r.id] for r in requests]


def _against_transformers(
    case: Case,
    folder: Path,
    steps: dict[str, float],
    tokens: list[bytes],
    prompts: list[np.ndarray],
) -> list[Measured]:
    from transformers import LlamaForCausalLM
    from transformers.utils import logging as hf_logging

    hf_logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    try:
        theirs = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        theirs.generation_config.eos_token_id = None
        theirs.generation_config.pad_token_id = 0
        found = []
        for title, target in case.rivals.items():
            ms, outputs = _RIVALS[title](theirs, prompts, case)
            found.append(Measured(f"transformers {title}: ms a decode step", ms, "ms"))
            found.append(
                Measured(
                    f"sequences with the same tokens as {title}",
                    _equal(tokens, outputs),
                    f"of {case.batch}",
                )
            )
            found += [
                Measured(
                    f"{name} over transformers {title}, tokens a second",
                    ms / step,
                    "x",
                    at_least=target,
                )
                for name, step in steps.items()
            ]
        return found
    finally:
        logging.disable(logging.NOTSET)


def _padded(
    model: Any, prompts: list[np.ndarray], case: Case, **how: Any
) -> tuple[float, list[bytes]]:
    """`generate` over left-padded prompts."""
    longest = max(len(p) for p in prompts)
    ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    mask = torch.zeros(len(prompts), longest, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.from_numpy(prompt)
        mask[row, longest - len(prompt) :] = 1

    def run(count: int) -> torch.Tensor:
        with torch.inference_mode():
            return model.generate(
                ids, attention_mask=mask, max_new_tokens=count, do_sample=False, **how
            )

    ms, out = _difference(run, case)
    return ms, [row.astype(np.uint16).tobytes() for row in out[:, longest:].numpy()]


def _continuous(model: Any, prompts: list[np.ndarray], case: Case) -> tuple[float, list[bytes]]:
    """`generate_batch`: transformers' own continuous batching over a paged cache."""
    from transformers import ContinuousBatchingConfig

    inputs = [p.tolist() for p in prompts]
    # By default nine tenths of the free memory are taken, and written, for a pool that this batch
    # fills to a hundredth.
    pool = ContinuousBatchingConfig(max_memory_percent=0.1)

    def run(count: int) -> list[list[int]]:
        out = model.generate_batch(
            inputs, continuous_batching_config=pool, max_new_tokens=count, do_sample=False
        )
        ordered = sorted(out.values(), key=lambda o: int(o.request_id.rpartition("_")[2]))
        return [o.generated_tokens for o in ordered]

    ms, out = _difference(run, case)
    return ms, [np.array(row, np.uint16).tobytes() for row in out]


_RIVALS: dict[str, Callable[..., tuple[float, list[bytes]]]] = {
    "dynamic cache": _padded,
    "static cache": partial(_padded, cache_implementation="static", disable_compile=True),
    "continuous batching": _continuous,
}


def _difference(run: Callable[[int], Any], case: Case) -> tuple[float, Any]:
    """(ms a token step, outputs of the long run), prefill and start-up taken out."""
    short = 4
    run(short)
    times = []
    for _ in range(case.rounds):
        began = time.perf_counter()
        run(short)
        middle = time.perf_counter()
        out = run(case.new_tokens)
        end = time.perf_counter()
        times.append(((end - middle) - (middle - began)) / (case.new_tokens - short))
    return statistics.median(times) * 1e3, out
