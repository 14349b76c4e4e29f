"""What is uploaded, and what is done with it: requests, scenarios, recordings, configs.

Each target makes one hostile input from a Random, and reads it as pages and commands do.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple

from kvviz.capacity.fields import parse_config
from kvviz.capacity.plan import Ask
from kvviz.capacity.presets import models
from kvviz.planning.report import checked_shape, plan_or_none
from kvviz.replay.load import from_trace
from kvviz.scenario.examples import examples
from kvviz.scenario.read import read
from kvviz.scenario.replay import frames, headed, replay
from kvviz.scenario.table import op_cells, request_cells
from kvviz.scenario.table import table as scenario_table
from kvviz.views.strip import StripRow, strip
from kvviz.views.theme import LIGHT
from kvviz.workloads.traces import arrivals
from kvviz.workloads.traces.describe import describe, table
from kvviz.workloads.traces.read import read_trace
from tests.fuzz.damage import broken_json, broken_text, broken_value, odd, one_of
from tests.workloads.traces import test_formats as formats


class Input(NamedTuple):
    """`size` in bytes; `call` reads it; `shown` tells what it was, for a report."""

    size: int
    call: Callable[[], object]
    shown: Any


TRACES = (
    formats.AZURE_2023, formats.AZURE_2024, formats.AZURE_2025, formats.BURSTGPT,
    formats.BURSTGPT_2, formats.VIDUR, formats.VIDUR_LENGTHS, formats.VTC, formats.PLAIN,
    formats.MOONCAKE, formats.BAILIAN, formats.APEX, formats.LLMSERVINGSIM, formats.VLLM,
    formats.PAIRS, formats.OBJECTS, '{"prompt_len": [1, 2], "output_len": [3, 4], "t": [0, 1]}',
)  # fmt: skip
_DOCUMENTS = [t.encode() for t in TRACES if t.lstrip()[0] in "{[" and "\n{" not in t]
RATES = b"0,0.5,1.2,Gamma,0.7,2.1\n600,1.5,0.9,Weibull,0.7,2.1\n1200,0,1,,0,0\n"
LENGTHS = json.dumps(
    {
        "0": {"input_tokens": "{10: 0.25, 374: 0.75}", "output_tokens": "{44: 0.5, 50: 0.5}"},
        "600": {"text_tokens": "{10: 1.0}", "output_tokens": "{44: 1.0}",
                "image_tokens": "{100: 1.0}", "image_count": "{2: 1.0}"},
    }
).encode()  # fmt: skip


def trace(random: Random) -> Input:
    """A file of requests, and sometimes the second half of a ServeGen client."""
    companion: bytes | None = None
    if random.randrange(6) == 0:
        data = broken_text(random, RATES)
        whole = broken_json(random, LENGTHS) if random.randrange(2) else LENGTHS
        companion = whole if random.randrange(4) else broken_text(random, LENGTHS)
        if random.randrange(4) == 0:
            data, companion = companion, data
    elif random.randrange(3) == 0:
        data = broken_json(random, one_of(random, [*_DOCUMENTS, LENGTHS]))
    else:
        data = broken_text(random, one_of(random, TRACES).encode())
    unit = one_of(random, [None, None, None, "s", "ms", "us", "ns", odd(random)])
    unit = unit if unit is None or isinstance(unit, str) else str(unit)
    rate = one_of(random, [None, 1.0, 1e-300, 1e300])
    value = odd(random)
    if isinstance(value, int | float) and abs(value) < 1e300:
        rate = float(value)
    size = len(data) + len(companion or b"")
    return Input(
        size, lambda: read_requests(data, companion, unit, rate), (data, companion, unit, rate)
    )


def read_requests(data: bytes, companion: bytes | None, unit: str | None, rate: Any) -> None:
    found = read_trace(data, companion=companion, unit=unit)
    told = describe(found)
    json.dumps(told, allow_nan=False)
    table(told)
    found.set_aside.csv()
    assert all(note.isprintable() for note in found.notes), found.notes
    assert all(reason.isprintable() for reason in found.set_aside.by_reason)
    if found.arrival_s is not None:
        arrivals.spread_bins(arrivals.cap_gaps(found, 1.0), 3.0)
        arrivals.skip_quiet_head(found)
    from_trace(found, slots=4096, rows=1000, rate=rate)


@lru_cache(maxsize=1)
def scenarios() -> list[bytes]:
    return [text.encode() for text in examples().values()]


def scenario(random: Random) -> Input:
    """A scenario, replayed, its pictures drawn."""
    data = one_of(random, scenarios())
    data = broken_text(random, data) if random.randrange(3) == 0 else broken_json(random, data)
    return Input(len(data), lambda: replay_scenario(data), data)


def replay_scenario(data: bytes) -> None:
    """As the page and the command do."""
    found = read(data)
    run = replay(found)
    told = headed(found, run.report())
    json.dumps(told, allow_nan=False)
    assert scenario_table(told).replace("\n", "").isprintable()
    for row in told.get("ops", ()):
        op_cells(row)
    for row in told.get("requests", ()):
        request_cells(row)
    shown = list(frames(found, 0, 4))
    rows = [StripRow(f.label, f.columns, f.names, f.ask, f.note) for f in shown]
    json.dumps(strip(rows, LIGHT, capacity=told["capacity"], paged=True), allow_nan=False)


@lru_cache(maxsize=1)
def configs() -> list[bytes]:
    own = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000,
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "max_position_embeddings": 4096, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
        "_name_or_path": "meta-llama/Llama-3.1-8B", "sliding_window": 1024,
        "layer_types": ["full_attention", "sliding_attention"] * 16,
        "quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}},
    }  # fmt: skip
    hybrid = {
        "text_config": {
            "num_hidden_layers": 8, "hidden_size": 512, "num_attention_heads": 8,
            "hybrid_override_pattern": "M-M*M-M*", "mamba_num_heads": 8, "mamba_head_dim": 64,
            "ssm_state_size": 16, "conv_kernel": 4, "n_groups": 2,
        }
    }  # fmt: skip
    known = [dict(model.config) for model in models().values()]
    return [json.dumps(config).encode() for config in (own, hybrid, *known)]


def config(random: Random) -> Input:
    """A model's config.json, pasted or uploaded, and the plan for it."""
    data = one_of(random, configs())
    data = broken_text(random, data) if random.randrange(4) == 0 else broken_json(random, data)
    dtype = one_of(random, ["auto", "auto", "bf16", "fp8", str(odd(random))])
    quant = None
    if random.randrange(4) == 0:
        quant = broken_value(random, {"quantization": {"kv_cache_quant_algo": "FP8"}})
    tp = one_of(random, [1, 1, 2, 3, 8, 1024])
    return Input(len(data), lambda: plan_for(data, dtype, quant, tp), (data, dtype, quant, tp))


def plan_for(data: bytes, dtype: str, quant: Any, tp: int) -> None:
    found = parse_config(data.decode("utf-8-sig", errors="replace"))
    name = found.get("_name_or_path")
    shape = checked_shape(found, name if isinstance(name, str) else "", dtype, quant)
    texts = [shape.slot_formula, shape.grow_formula, shape.constant_formula, *shape.warnings]
    assert all(text.isprintable() for text in texts), texts
    whole = shape.on_rank(tp)
    plan = plan_or_none(shape, found, Ask(tp=tp))
    if plan is not None:
        json.dumps(plan.as_dict(), allow_nan=False)
    assert whole.layers == shape.layers
