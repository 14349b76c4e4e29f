"""In which type K and V are kept: the caller's word, else the checkpoint's, else 16 bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvviz.capacity.fields import Fields
from kvviz.capacity.kvshape import KV_DTYPES
from kvviz.errors import ConfigError

_TORCH = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32"}
_SCHEMES = {"FP8": "fp8", "INT8": "int8", "NONE": ""}


def kv_dtype_of(
    asked: str, root: Fields, decoder: Fields, hf_quant: Mapping[str, Any] | None
) -> tuple[str, list[str]]:
    """(name in KV_DTYPES, warnings). Raises ConfigError for a type that is not known."""
    if asked != "auto" and asked not in KV_DTYPES:
        raise ConfigError(f"KV dtype {asked!r}: one of auto, {', '.join(KV_DTYPES)} was expected.")
    scheme, where = _scheme(root, decoder, hf_quant)
    if asked != "auto":
        if scheme and scheme != asked:
            return asked, [f"{where} asks for a KV cache in {scheme}; counted in {asked}."]
        return asked, []
    if scheme:
        return scheme, [f"KV cache in {scheme}, as {where} says."]
    word = next(
        (f.word(n) for f in (decoder, root) for n in ("dtype", "torch_dtype") if f.has(n)), ""
    ).removeprefix("torch.")
    known = _TORCH.get(word, "bf16")
    if known == "fp32":
        return "bf16", ["the weights are float32; engines serve such a model, and its KV cache, "
                        "in 16 bits, and so it is counted."]  # fmt: skip
    return known, []


def _scheme(root: Fields, decoder: Fields, hf_quant: Mapping[str, Any] | None) -> tuple[str, str]:
    """(type of the KV cache or '', the field that says so)"""
    places = [(Fields(hf_quant).inside("quantization"), "hf_quant_config.json")] if hf_quant else []
    for f in (root, decoder):
        if f.has("quantization_config"):
            places.append((f.inside("quantization_config"), f.path("quantization_config")))
    for f, where in places:
        algorithm = f.first("kv_cache_quant_algo", "kv_cache_quant_method")
        if algorithm:
            return _named(f.word(algorithm), f"{where} ({algorithm})")
        if f.has("kv_cache_scheme"):
            return _scheme_of(f.inside("kv_cache_scheme"), f"{where} (kv_cache_scheme)")
    return "", ""


def _named(word: str, where: str) -> tuple[str, str]:
    if word.upper() not in _SCHEMES:
        raise ConfigError(
            f"{where} is {word[:40]!r}: {', '.join(_SCHEMES)} are understood. Name the KV dtype "
            "yourself."
        )
    return _SCHEMES[word.upper()], where


def _scheme_of(f: Fields, where: str) -> tuple[str, str]:
    """compressed-tensors: a number of bits and float or int."""
    bits, kind = f.whole("num_bits"), f.word("type")
    if bits != 8 or kind not in ("float", "int"):
        raise ConfigError(
            f"{where} asks for {bits} bits of {kind[:40]!r}; 8 bits of float or int are "
            "understood. Name the KV dtype yourself."
        )
    return ("fp8" if kind == "float" else "int8"), where
