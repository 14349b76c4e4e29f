"""A Llama in GGUF, llama.cpp's file format, written as a Hugging Face folder in float32.

GGUF holds the weights in blocks of few bits, and Q and K with each head's rows interleaved for
its own rotary embedding; the tokenizer's tables lie in the same file.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kvviz.model.families import CONFIG_NAME
from kvviz.model.tokens import TOKENIZER_NAME

CONTROL = 3  # the token type of markers such as <|im_start|>
_OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(source: Path, folder: Path, *, end_tokens: tuple[int, ...]) -> None:
    """Write config.json, model.safetensors, tokenizer.json and the chat template into `folder`.

    `end_tokens`: by which the model ends its text, of which the file names only one. Raises
    ValueError or KeyError when the file is no Llama with a byte-level BPE.
    """
    from safetensors.numpy import save_file

    reader = _reader(source)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    config = _config(facts, {tensor.name for tensor in reader.tensors}, end_tokens)
    (folder / CONFIG_NAME).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    _write_tokenizer(facts, folder)
    weights = dict(_weight(tensor, config) for tensor in reader.tensors)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _reader(source: Path) -> Any:
    """gguf's reader, which would go on behind the file's end for as long as a count in it says, and
    takes up to 25 s for each megabyte of a list, whose entries it reads one by one."""
    from gguf import GGUFReader, GGUFValueType

    class Bounded(GGUFReader):
        @property
        def data(self) -> Any:
            return self._plain

        @data.setter
        def data(self, mapped: Any) -> None:
            self._plain = np.asarray(mapped)  # to cut a memmap takes several times as long

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            self._expect(int(offset) + int(count) * np.dtype(dtype).itemsize)
            return super()._get(offset, dtype, count, override_order)

        def _get_field_parts(self, orig_offs: int, raw_type: int) -> Any:
            if raw_type != GGUFValueType.ARRAY:
                return super()._get_field_parts(orig_offs, raw_type)
            head = [self._get(orig_offs, np.uint32), self._get(orig_offs + 4, np.uint64)]
            kind, count = GGUFValueType(int(head[0][0])), int(head[1][0])
            first = orig_offs + sum(part.nbytes for part in head)
            scalar = self.gguf_scalar_to_np.get(kind)
            if scalar:
                parts = [self._get(first, scalar, count)]
            elif kind == GGUFValueType.STRING:
                parts = self._strings(first, count)
            else:
                return super()._get_field_parts(orig_offs, raw_type)
            end = first + sum(part.nbytes + (0 if scalar else 8) for part in parts)
            places = [*range(2, 2 + len(parts))]
            return end - orig_offs, head + parts, places, [GGUFValueType.ARRAY, kind]

        def _strings(self, at: int, count: int) -> list[np.ndarray]:
            """Each as its bytes, behind their number in eight."""
            little = (sys.byteorder == "little") != (self.byte_order == "S")
            length, found = struct.Struct("<Q" if little else ">Q"), []
            for _ in range(count):
                self._expect(at + 8)
                end = at + 8 + length.unpack_from(self.data, at)[0]
                self._expect(end)
                found.append(self.data[at + 8 : end])
                at = end
            return found

        def _expect(self, end: int) -> None:
            if end > len(self.data):
                raise ValueError("it ends in the middle of what it announces")

    return Bounded(source)


def hf_name(name: str) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`."""
    if name in _OUTER:
        return _OUTER[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{_INNER[part]}.{kind}"


def to_rotate_half(matrix: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from pairs (0, 1), (2, 3), ... to two halves. matrix [heads * d_h, in]."""
    rows, width = matrix.shape
    pairs = matrix.reshape(heads, rows // heads // 2, 2, width)
    return pairs.swapaxes(1, 2).reshape(rows, width)


def _weight(tensor: Any, config: Mapping[str, Any]) -> tuple[str, np.ndarray]:
    """(Hugging Face's name, float32 array) of a tensor of the reader."""
    from gguf import dequantize

    array = dequantize(tensor.data, tensor.tensor_type)
    heads = {
        "attn_q": config["num_attention_heads"],
        "attn_k": config["num_key_value_heads"],
    }.get(tensor.name.split(".")[-2])
    if heads:
        array = to_rotate_half(array, heads)
    return hf_name(tensor.name), np.ascontiguousarray(array, np.float32)


def _config(
    facts: Mapping[str, Any], tensors: set[str], end_tokens: tuple[int, ...]
) -> dict[str, Any]:
    if facts["general.architecture"] != "llama":
        raise ValueError(f"architecture {facts['general.architecture']}, not llama")
    heads = facts["llama.attention.head_count"]
    theta = _shortest(facts["llama.rope.freq_base"])
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": len(facts["tokenizer.ggml.tokens"]),
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.embedding_length"] // heads,
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "rms_norm_eps": _shortest(facts["llama.attention.layer_norm_rms_epsilon"]),
        "max_position_embeddings": facts["llama.context_length"],
        "hidden_act": "silu",
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": list(end_tokens),
    }


def _shortest(value: float) -> float:
    """1e-05 for the float32 that lies nearest to it."""
    return float(str(np.float32(value)))


def _write_tokenizer(facts: Mapping[str, Any], folder: Path) -> None:
    """tokenizer.json, tokenizer_config.json and the chat template, from the file's tables."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    if facts["tokenizer.ggml.model"] != "gpt2" or facts["tokenizer.ggml.pre"] != "smollm":
        raise ValueError(f"tokenizer {facts['tokenizer.ggml.model']}, not SmolLM's byte-level BPE")
    words = facts["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in facts["tokenizer.ggml.merges"]]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = facts["tokenizer.ggml.token_type"]
    markers = [word for word, kind in zip(words, kinds, strict=True) if kind == CONTROL]
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in markers])
    tokenizer.save(str(folder / TOKENIZER_NAME))
    names = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": words[facts["tokenizer.ggml.bos_token_id"]],
        "eos_token": words[facts["tokenizer.ggml.eos_token_id"]],
    }
    text = json.dumps(names, indent=2)
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")
    template = facts["tokenizer.chat_template"]
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
