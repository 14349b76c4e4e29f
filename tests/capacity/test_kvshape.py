"""What a config costs: the cases that calculators got wrong, with figures derived by hand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvviz.capacity.fields import MAX_TEXT, parse_config
from kvviz.capacity.kvshape import KV_DTYPES, KVShape, window_cells
from kvviz.capacity.presets import model, models, unlike_preset
from kvviz.capacity.reader import read_shape
from kvviz.capacity.sizes import read_sizes
from kvviz.errors import ConfigError

GiB = 1 << 30
LLAMA = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}


def costs(config: dict, **more) -> tuple[int, int, int]:
    """(a slot, growth a token, constant a request) in bytes"""
    shape = read_shape(config, **more)
    return shape.slot_bytes, shape.grow_bytes, shape.constant_bytes


def test_fixture_plain():
    """The seed formula 2 L H d s is off."""
    assert costs(LLAMA) == (524_288, 524_288, 0)


def test_fixture_nested_windows():
    """D14: a config whose root has no decoder, and windows paid in full."""
    inner = {"num_hidden_layers": 62, "num_key_value_heads": 16, "head_dim": 128,
             "sliding_window": 1024, "sliding_window_pattern": 6}  # fmt: skip
    for name in ("text_config", "llm_config", "language_config"):
        assert costs({name: inner, "vision_config": {}}) == (507_904, 81_920, 436_207_616)


def test_fixture_latent():
    """D01, D10: a factor 2 or heads in the formula of a latent; 64 from the file as it is."""
    config = {"num_hidden_layers": 61, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert costs(config) == (70_272, 70_272, 0)
    same = read_shape({**config, "qk_rope_head_dim": 128, "qk_nope_head_dim": 128})
    assert same.slot_bytes == 61 * (512 + 128) * 2
    assert "equals qk_nope_head_dim" in same.warnings[0]


TABLE = {  # a slot, growth, constant, and GiB of one request of the full context
    "OPT-13B": (819_200, 819_200, 0, 1.5625),
    "Llama-2-7B": (524_288, 524_288, 0, 2.0),
    "Llama-3.1-8B": (131_072, 131_072, 0, 16.0),
    "Llama-3.1-70B": (327_680, 327_680, 0, 40.0),
    "Qwen2.5-7B": (57_344, 57_344, 0, 1.75),
    "Qwen3-0.6B": (114_688, 114_688, 0, 4.375),  # D06
    "Qwen3-4B": (147_456, 147_456, 0, 5.625),  # D01: head_dim 128, not 80
    "Qwen3-8B": (147_456, 147_456, 0, 5.625),
    "Mistral-7B-v0.1": (131_072, 0, 536_870_912, 0.5),
    "Mistral-Small-24B": (163_840, 163_840, 0, 5.0),  # D03: 128, not 160
    "Gemma-2-9B": (344_064, 172_032, 704_643_072, 1.96875),
    "Gemma-3-12B": (393_216, 65_536, 335_544_320, 8.3125),
    "Gemma-3-27B": (507_904, 81_920, 436_207_616, 10.40625),  # D06
    "gpt-oss-20b": (49_152, 24_576, 3_145_728, 3.0029296875),  # D03: 64, not 45
    "DeepSeek-V3": (70_272, 70_272, 0, 10.72265625),  # D06
    "Gemma-4-31B": (901_120, 81_920, 838_860_800, 20.78125),  # B17
}


@pytest.mark.parametrize("name", models())
def test_presets(name):
    """A preset's figures differ from those derived by hand, or it is not what its name says."""
    config = model(name).config
    shape = read_shape(config)
    if name in TABLE:
        slot, grow, constant, gib = TABLE[name]
        assert (shape.slot_bytes, shape.grow_bytes, shape.constant_bytes) == (slot, grow, constant)
        assert shape.request_bytes(shape.max_context) == gib * GiB
    assert unlike_preset(config, name) == []
    assert f"{shape.slot_bytes:,} B" in shape.slot_formula


def test_hybrid():
    """D06: linear-attention layers paid as if they kept tokens (53.25 GiB for 16)."""
    shape = read_shape(model("Qwen3.5-27B").config)
    assert shape.grow_bytes * 262_144 == 16 * GiB
    state = 48 * 128 * 128 * 4 + (2 * 16 * 128 + 48 * 128) * 3 * 2
    assert shape.constant_bytes == 48 * state
    listed = dict(model("Qwen3.5-27B").config["text_config"])
    del listed["full_attention_interval"]
    listed["layer_types"] = (["linear_attention"] * 3 + ["full_attention"]) * 16
    assert costs(listed) == (shape.slot_bytes, shape.grow_bytes, shape.constant_bytes)


def test_mamba_hybrids():
    """Mamba states are forgotten, or their layers taken for attention."""
    base = {**LLAMA, "num_hidden_layers": 8, "num_key_value_heads": 8}
    one = {"attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4,
           "mamba_expand": 2}  # fmt: skip
    assert costs(base | one) == (4096, 4096, 7 * (8192 * 16 * 4 + 8192 * 3 * 2))
    two = {"layer_types": ["mamba"] * 7 + ["attention"], "mamba_n_heads": 128, "mamba_d_head": 64,
           "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_n_groups": 1}  # fmt: skip
    state = 128 * 64 * 128 * 4 + (8192 + 2 * 128) * 3 * 2
    assert costs(base | two) == (4096, 4096, 7 * state)


@pytest.mark.parametrize("empty", [None, 0])
def test_head_dim(empty):
    """D04, D10: an explicit head_dim is ignored, or null and 0 are taken for one."""
    assert costs({**LLAMA, "head_dim": 64})[0] == 262_144
    assert costs({**LLAMA, "head_dim": empty})[0] == 524_288


@pytest.mark.parametrize(
    "config",
    [
        LLAMA,
        {**LLAMA, "num_key_value_heads": None},
        {"n_embd": 4096, "n_layer": 32, "n_head": 32},
        {"d_model": 4096, "n_layers": 32, "n_heads": 32},
        {"hidden_size": 4096, "num_layers": 32, "num_heads": 32},
    ],
    ids=str,
)
def test_old_names(config):
    """D15: the names of GPT-2, MPT, OPT and the first Llama are not known."""
    assert costs(config)[0] == 524_288


@pytest.mark.parametrize(
    ("more", "heads"),
    [
        ({"num_key_value_heads": 8}, 8),
        ({"n_head_kv": 8}, 8),
        ({"num_kv_heads": 4}, 4),
        ({"multi_query_group_num": 2, "multi_query_attention": True}, 2),
        ({"multi_query_group_num": 2, "multi_query_attention": False}, 32),
        ({"num_attention_groups": 4}, 4),
        ({"multi_query": True}, 1),
        ({"attn_config": {"kv_n_heads": 8}}, 8),
    ],
    ids=str,
)
def test_kv_heads(more, heads):
    """D12: grouped or single KV heads are counted as if every head had its own."""
    assert costs(LLAMA | more)[0] == 2 * 32 * heads * 128 * 2


def test_windows_in_use():
    """A window that is switched off is honoured, or one in use is not."""
    window = {"sliding_window": 4096, "max_position_embeddings": 32768}
    assert costs(LLAMA | window)[1:] == (0, 524_288 * 4096)
    assert costs(LLAMA | window | {"use_sliding_window": False})[1:] == (524_288, 0)
    half = window | {"use_sliding_window": True, "max_window_layers": 16}
    assert costs(LLAMA | half)[1:] == (262_144, 262_144 * 4096)
    assert costs(LLAMA | window | {"max_position_embeddings": 2048})[1:] == (524_288, 0)


def test_a_window_is_paid_as_far_as_it_is_filled():
    """B17: a short request would pay for its whole window."""
    shape = read_shape(model("Gemma-3-27B").config)
    assert shape.request_bytes(1) == 507_904
    assert shape.request_bytes(1024) == 1024 * 507_904
    assert shape.request_bytes(1025) == 1024 * 507_904 + 81_920


def test_llama_cpp_window_cells():
    """A11: the window's cells in llama.cpp, padded to 256 and never above the context."""
    assert window_cells(4096, 512, 1024) == 1536
    assert 160 * 1536 / 4096 == 60
    assert window_cells(1024, 512, 1024) == 1024


@pytest.mark.parametrize(
    ("more", "quant", "dtype"),
    [
        ({}, None, "bf16"),
        ({"torch_dtype": "float16"}, None, "fp16"),
        ({"dtype": "float32"}, None, "bf16"),
        ({}, {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}, "fp8"),
        ({"quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}}, None,
         "fp8"),
        ({"quantization_config": {"kv_cache_scheme": None}}, None, "bf16"),
    ],
    ids=str,
)  # fmt: skip
def test_kv_dtype(more, quant, dtype):
    """D09: the type of the KV cache stands only in the quantisation's part, and halves a slot."""
    shape = read_shape(LLAMA | more, hf_quant=quant)
    assert dtype == shape.kv_dtype
    assert shape.slot_bytes == 262_144 * KV_DTYPES[dtype]
    asked = read_shape(LLAMA | more, hf_quant=quant, kv_dtype="fp32")
    assert asked.slot_bytes == 1_048_576
    assert any("asks for a KV cache in fp8" in w for w in asked.warnings) == (dtype == "fp8")


def test_a_copy_that_is_wrong_is_flagged():
    """D13: a stored Mistral config with one KV head is believed, off by 8 times."""
    wrong = {**model("Mistral-7B-v0.1").config, "num_key_value_heads": 1}
    assert "16,384 bytes, not 131,072" in unlike_preset(wrong)[0]
    no_window = {**model("Mistral-7B-v0.1").config, "sliding_window": None}
    assert unlike_preset(no_window) == []  # v0.3
    assert len(unlike_preset(no_window, "mistralai/Mistral-7B-v0.1")) == 1
    assert unlike_preset(LLAMA) == []


@pytest.mark.parametrize("name", ["OPT-13B", "Llama-2-7B", "Llama-3.1-70B", "Qwen3-4B",
                                  "Mistral-Small-24B", "Gemma-2-9B"])  # fmt: skip
def test_parameters_counted_from_the_shapes(name):
    """The count, or the preset's number, is wrong: two sources would not agree to 0.2 %."""
    known = model(name)
    assert read_sizes(known.config).parameters == pytest.approx(known.parameters, rel=2e-3)


def test_ranks():
    """Heads are split below one, or a latent is split at all."""
    shape = read_shape(model("Llama-3.1-8B").config)
    assert [shape.on_rank(n).slot_bytes for n in (1, 2, 8, 16)] == [131_072, 65_536, 16_384, 16_384]
    latent = read_shape(model("DeepSeek-V3").config)
    assert latent.on_rank(8).slot_bytes == 70_272
    with pytest.raises(ConfigError, match="8 KV heads can't be split over 3 GPUs"):
        shape.on_rank(3)


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, "num_hidden_layers"),
        ({"num_hidden_layers": 2}, "num_attention_heads"),
        ({**LLAMA, "num_hidden_layers": 32.0}, "num_hidden_layers"),
        ({**LLAMA, "num_hidden_layers": True}, "num_hidden_layers"),
        ({**LLAMA, "num_hidden_layers": 10**30}, "num_hidden_layers"),
        ({**LLAMA, "num_attention_heads": -1}, "num_attention_heads"),
        ({**LLAMA, "num_key_value_heads": [8] * 32}, "num_key_value_heads"),
        ({**LLAMA, "num_key_value_heads": 5}, "num_key_value_heads"),
        ({**LLAMA, "hidden_size": "4096"}, "hidden_size"),
        ({**LLAMA, "hidden_size": 4097}, "head_dim"),
        ({**LLAMA, "layer_types": ["full_attention"]}, "layer_types"),
        ({**LLAMA, "layer_types": ["new_attention"] * 32}, "layer_types"),
        ({**LLAMA, "layer_types": ["sliding_attention"] * 32}, "sliding_window"),
        ({**LLAMA, "layer_types": ["mamba"] * 32}, "mamba_d_state"),
        ({**LLAMA, "linear_attn_config": {"kda_layers": [1]}}, "linear_attn_config"),
        ({"num_hidden_layers": 2, "kv_lora_rank": 512}, "qk_rope_head_dim"),
        ({"text_config": {"hidden_size": 1}}, "text_config.num_hidden_layers"),
        ({"text_config": 3}, "text_config"),
        ({**LLAMA, "is_encoder_decoder": True}, "is_encoder_decoder"),
        ({**LLAMA, "quantization_config": {"kv_cache_scheme": {"num_bits": 4, "type": "int"}}},
         "kv_cache_scheme"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_understood_is_named(config, field):
    """A guess, or a traceback, instead of the field's name."""
    with pytest.raises(ConfigError, match=field.replace(".", r"\.")):
        read_shape(config)


@pytest.mark.parametrize("text", ["", "[1]", "{", "null", "[" * 100_000, "{" + " " * MAX_TEXT])
def test_text_that_is_no_config(text):
    """Pasted text ends in a traceback, or eats the memory."""
    with pytest.raises(ConfigError):
        parse_config(text)


_NAMES = [
    "hidden_size",
    "n_embd",
    "num_hidden_layers",
    "n_layer",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "v_head_dim",
    "kv_lora_rank",
    "qk_rope_head_dim",
    "qk_nope_head_dim",
    "sliding_window",
    "layer_types",
    "dtype",
    "sliding_window_pattern",
    "use_sliding_window",
    "max_window_layers",
    "full_attention_interval",
    "text_config",
    "attn_layer_period",
    "attn_config",
    "multi_query",
    "torch_dtype",
    "quantization_config",
    "model_type",
    "vocab_size",
    "max_position_embeddings",
    "num_kv_shared_layers",
    "_name_or_path",
    "hybrid_override_pattern",
    "mamba_expand",
    "mamba_d_state",
    "mamba_d_conv",
    "linear_num_key_heads",
    "intermediate_size",
    "num_experts",
]
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 64), st.integers(), st.floats(),
    st.sampled_from(["mistral", "full_attention", "float16", "*M-", ""]), st.text(max_size=4),
)  # fmt: skip
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4)
    ),
    max_leaves=6,
)
_CONFIGS = st.one_of(
    st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=8),
    st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=3).map(lambda d: LLAMA | d),
    st.dictionaries(st.text(max_size=8), _VALUES, max_size=4),
)


@given(_CONFIGS, st.sampled_from(["auto", *KV_DTYPES, "int3"]))
@settings(max_examples=200, deadline=None)
def test_any_object_gives_a_shape_or_a_message(config, kv_dtype):
    """A config from the internet ends in a traceback, or in sizes that can't be."""
    try:
        shape = read_shape(config, kv_dtype=kv_dtype)
        read_sizes(config)
        unlike_preset(config)
    except ConfigError as error:
        told = str(error)
        assert told and len(told) < 1000
        return
    assert isinstance(shape, KVShape)
    assert 0 <= shape.grow_bytes <= shape.slot_bytes
    assert shape.constant_bytes >= 0 and shape.slot_bytes + shape.constant_bytes > 0
    json.dumps([shape.slot_formula, shape.grow_formula, shape.constant_formula])


@given(st.integers(1, 5000), st.sampled_from(sorted(models())))
@settings(max_examples=60, deadline=None)
def test_the_longest_request_is_the_longest(tokens, name):
    """One more token would fit, or the one suggested does not."""
    shape = read_shape(model(name).config)
    memory = shape.request_bytes(tokens)
    found = shape.longest_request(memory, most=10_000)
    assert found >= tokens and shape.request_bytes(found) <= memory
    assert found == 10_000 or shape.request_bytes(found + 1) > memory
