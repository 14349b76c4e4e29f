"""Decode speed of each lane beside transformers, same weights, same prompts, same tokens out.

32 sequences, prompts of 128 to 448 tokens, 64 tokens generated: contexts of 128 to 512. Greedy,
one thread for all. Prefill is taken out: ours is timed from the step in which all sequences
decode, transformers' as the difference between a long and a short generation.
"""

from __future__ import annotations

import logging
import statistics
import time
from importlib.util import find_spec

import numpy as np
import torch

from kvviz.bench.result import Measured
from kvviz.caches.budget import PoolBudget
from kvviz.caches.layouts import LAYOUTS
from kvviz.caches.store import KVStore
from kvviz.config import RunConfig
from kvviz.engine.engine import Engine
from kvviz.engine.recorder import Recorder
from kvviz.model.forward import ModelForward
from kvviz.model.prompts import PromptText
from kvviz.model.serving import SHIPPED, ServingModel, load_serving
from kvviz.records import Request

BATCH = 32
NEW_TOKENS = 64
ROUNDS = 3

COMPARED = ("contiguous", "paged")


def bench_engine() -> list[Measured]:
    """Ratios to transformers where it is installed, else the lanes alone."""
    model = load_serving(device=torch.device("cpu"))
    prompts = PromptText()
    requests = [
        Request(i, 0, int(n), NEW_TOKENS, NEW_TOKENS, text=17 * i)
        for i, n in enumerate(np.linspace(128, 512 - NEW_TOKENS, BATCH))
    ]
    runs: dict[str, list[float]] = {name: [] for name in COMPARED}
    tokens: dict[str, list[bytes]] = {}
    for _ in range(ROUNDS):  # the lanes take turns, so that a slow minute hits both
        for name in COMPARED:
            step, tokens[name] = _lane(name, model, prompts, requests)
            runs[name].append(step)
    steps = {name: statistics.median(times) for name, times in runs.items()}
    found = [
        Measured(f"{name}: ms a decode step, batch {BATCH}", ms, "ms") for name, ms in steps.items()
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
            f"of {BATCH}",
            at_least=BATCH,
        )
    )
    if find_spec("transformers"):
        found += _against_transformers(steps, tokens["contiguous"], [prompts(r) for r in requests])
    return found


def _equal(ours: list[bytes], theirs: list[bytes]) -> int:
    return sum(a == b for a, b in zip(ours, theirs, strict=True))


def _lane(
    name: str, model: ServingModel, prompts: PromptText, requests: list[Request]
) -> tuple[float, list[bytes]]:
    """(ms a step in which all sequences decode, generated tokens of each)"""
    config = RunConfig().replace(
        {
            "memory.slots": 32_768,
            "engine.token_budget": 4096,
            "engine.max_running": BATCH,
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
        if engine.generated - before == BATCH and engine.outstanding == BATCH:
            times.append(time.perf_counter() - began)
    engine.close()
    return statistics.median(times[1:]) * 1e3, [engine.outputs[r.id] for r in requests]


def _against_transformers(
    steps: dict[str, float], tokens: list[bytes], prompts: list[np.ndarray]
) -> list[Measured]:
    from transformers import LlamaForCausalLM
    from transformers.utils import logging as hf_logging

    hf_logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    try:
        theirs = LlamaForCausalLM.from_pretrained(SHIPPED, dtype=torch.float32).eval()
        theirs.generation_config.eos_token_id = None
        theirs.generation_config.pad_token_id = 0
        found = []
        for title, generate, target in (
            ("static cache", _static, 1.5),
            ("continuous batching", _continuous, 5.0),
        ):
            ms, outputs = generate(theirs, prompts)
            found.append(Measured(f"transformers {title}: ms a decode step", ms, "ms"))
            found.append(
                Measured(
                    f"sequences with the same tokens as {title}",
                    _equal(tokens, outputs),
                    f"of {BATCH}",
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


@torch.inference_mode()
def _static(model: torch.nn.Module, prompts: list[np.ndarray]) -> tuple[float, list[bytes]]:
    """`generate` with a static cache over left-padded prompts."""
    longest = max(len(p) for p in prompts)
    ids = torch.zeros(BATCH, longest, dtype=torch.long)
    mask = torch.zeros(BATCH, longest, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.from_numpy(prompt)
        mask[row, longest - len(prompt) :] = 1

    def run(count: int) -> torch.Tensor:
        return model.generate(
            ids,
            attention_mask=mask,
            max_new_tokens=count,
            do_sample=False,
            cache_implementation="static",
            disable_compile=True,
        )

    ms, out = _difference(run)
    return ms, [row.astype(np.uint16).tobytes() for row in out[:, longest:].numpy()]


def _continuous(model: torch.nn.Module, prompts: list[np.ndarray]) -> tuple[float, list[bytes]]:
    """`generate_batch`: transformers' own continuous batching over a paged cache."""
    inputs = [p.tolist() for p in prompts]

    def run(count: int) -> list[list[int]]:
        out = model.generate_batch(inputs, max_new_tokens=count, do_sample=False)
        ordered = sorted(out.values(), key=lambda o: int(o.request_id.rpartition("_")[2]))
        return [o.generated_tokens for o in ordered]

    ms, out = _difference(run)
    return ms, [np.array(row, np.uint16).tobytes() for row in out]


def _difference(run) -> tuple[float, object]:  # noqa: ANN001 - a function from tokens to outputs
    """(ms a token step, outputs of the long run), prefill and start-up taken out."""
    short = 4
    run(short)
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        run(short)
        middle = time.perf_counter()
        out = run(NEW_TOKENS)
        end = time.perf_counter()
        times.append(((end - middle) - (middle - began)) / (NEW_TOKENS - short))
    return statistics.median(times) * 1e3, out
