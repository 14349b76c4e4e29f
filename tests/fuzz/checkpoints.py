"""Hostile checkpoint folders, GGUF files, chats and prompts: what a path may lead to."""

from __future__ import annotations

import atexit
import json
import tempfile
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from kvviz.model.llama import Llama
from kvviz.model.prompts import PromptText, prompts_for, read_chats
from kvviz.model.serving import load_serving
from kvviz.model.smollm2 import _write
from kvviz.model.tokens import load_tokenizer
from kvviz.model.weights import save
from kvviz.records import Request
from tests.conftest import TINY
from tests.fuzz.damage import broken_bytes, broken_json, broken_text, odd, one_of
from tests.fuzz.files import Input

TEMPLATE = (
    "{% for m in messages %}{{ bos_token }}<u>{{ m['content'] }}</u>{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)
TEMPLATES = [
    TEMPLATE,
    "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "{{ 'x' * 10 ** 9 }}{{ messages[0]['content'] }}",
    "{{ 'x' * 99999999 }}",
    "{{ 9 ** 9 ** 9 }}",
    "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.system('false') }}",
    "{% include '/etc/passwd' %}{{ messages[0].content }}",
    "{% import 'os' as o %}",
    "{{ raise_exception('no') }}",
    "{{ messages[0].content.x.y }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ messages[0]['content'] }}{{ 1 / 0 }}",
    "{{ messages[7] }}{{ messages[0]['content'] }}",
    "{{ lipsum(n=100000) }}",
    "{{ strftime_now('%d') }}{{ messages[0]['content'] }}{{ messages[0]['content'] }}",
    "{% if %}",
]


@lru_cache(maxsize=1)
def tokenizer() -> bytes:
    """A byte-level BPE of 257 words."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    words = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({word: at for at, word in enumerate(words)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<end>", special=True)])
    return made.to_str().encode()


@lru_cache(maxsize=1)
def folder() -> dict[str, bytes]:
    """A good checkpoint by file name."""
    import torch

    with tempfile.TemporaryDirectory() as place:
        save(Llama(TINY, torch.Generator().manual_seed(0)), Path(place))
        found = {path.name: path.read_bytes() for path in Path(place).iterdir()}
    config = json.loads(found["config.json"])
    index = {"weight_map": dict.fromkeys(_weights(found["model.safetensors"]), "a.safetensors")}
    return {
        **found,
        "config.json": json.dumps(config).encode(),
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": b'{"bos_token": "<s>", "eos_token": {"content": "</s>"}}',
        "generation_config.json": b'{"eos_token_id": [256, 0]}',
        "chat_template.jinja": TEMPLATE.encode(),
        "model.safetensors.index.json": json.dumps(index).encode(),
    }


def _weights(data: bytes) -> list[str]:
    length = int.from_bytes(data[:8], "little")
    return [name for name in json.loads(data[8 : 8 + length]) if name != "__metadata__"]


def checkpoint(random: Random) -> Input:
    """A folder with one or two broken files."""
    files: dict[str, bytes] = dict(folder())
    if random.randrange(4) == 0:
        files["a.safetensors"] = files.pop("model.safetensors")
    if random.randrange(3) == 0:
        files.pop("chat_template.jinja")
    if random.randrange(6) == 0:
        files["tokenizer_config.json"] = json.dumps(
            {"chat_template": one_of(random, [TEMPLATE, [{"name": "default"}], odd(random)])}
        ).encode("utf-8", "surrogatepass")
    for name in random.sample(sorted(files), 1 + random.randrange(2)):
        files[name] = _broken(random, name, files[name])
    size = sum(map(len, files.values()))
    return Input(size, lambda: _load(files), {n: d[:300] for n, d in files.items()
                                              if d != folder().get(n)})  # fmt: skip


def _broken(random: Random, name: str, data: bytes) -> bytes:
    if name.endswith(".jinja"):
        chosen = one_of(random, TEMPLATES).encode()
        return chosen if random.randrange(2) else broken_text(random, chosen)
    if name.endswith(".json"):
        return broken_json(random, data) if random.randrange(4) else broken_text(random, data)
    length = int.from_bytes(data[:8], "little")
    kind = random.randrange(4)
    if kind == 0:
        return broken_bytes(random, data)
    if kind == 1:
        head = broken_bytes(random, data[8 : 8 + length])
    else:
        head = broken_json(random, data[8 : 8 + length])
    return len(head).to_bytes(8, "little") + head + data[8 + length :]


def _load(files: dict[str, bytes]) -> None:
    read_folder(_laid(files))


@lru_cache(maxsize=1)
def _whole() -> tempfile.TemporaryDirectory:
    """Goes with the process."""
    made = tempfile.TemporaryDirectory(prefix="kvviz-fuzz-")
    atexit.register(made.cleanup)
    return made


def _laid(files: dict[str, bytes]) -> Path:
    """A folder that holds these files and no others."""
    place = Path(_whole().name)
    for old in place.iterdir():
        old.unlink()
    for name, data in files.items():
        (place / name).write_bytes(data)
    return place


def read_folder(place: Path) -> None:
    """As serving does: the weights, the tokenizer, a prompt of each kind."""
    model = load_serving(place)
    made = load_tokenizer(place, model.shape.vocab_size)
    prompts = prompts_for(made)
    tokens = prompts(Request(0, 0, 40, 1, 1, text=3))
    assert tokens.shape == (40,) and tokens.dtype == np.int32
    made.decode(tokens.tolist())


@lru_cache(maxsize=1)
def gguf() -> bytes:
    """A Llama of one layer in llama.cpp's format."""
    from gguf import GGUFWriter

    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "a.gguf")
        writer = GGUFWriter(path, "llama")
        writer.add_context_length(64)
        writer.add_embedding_length(32)
        writer.add_block_count(1)
        writer.add_feed_forward_length(64)
        writer.add_head_count(4)
        writer.add_head_count_kv(2)
        writer.add_rope_freq_base(10_000.0)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list(["<end>", "<a>", "<b>", "x", "y", "xy"])
        writer.add_token_types([3, 3, 3, 1, 1, 1])
        writer.add_token_merges(["x y"])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_chat_template(TEMPLATE)
        for name, shape in {
            "token_embd.weight": (6, 32), "output_norm.weight": (32,),
            "blk.0.attn_q.weight": (32, 32), "blk.0.attn_k.weight": (16, 32),
            "blk.0.attn_v.weight": (16, 32), "blk.0.attn_output.weight": (32, 32),
            "blk.0.attn_norm.weight": (32,), "blk.0.ffn_norm.weight": (32,),
            "blk.0.ffn_gate.weight": (64, 32), "blk.0.ffn_up.weight": (64, 32),
            "blk.0.ffn_down.weight": (32, 64),
        }.items():  # fmt: skip
            writer.add_tensor(name, np.zeros(shape, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path.read_bytes()


def gguf_file(random: Random) -> Input:
    """A broken file of the kind that SmolLM2 comes in; most faults are in its head."""
    data = gguf()
    if random.randrange(3):
        cut = 64 if random.randrange(2) else 1200
        data = broken_bytes(random, data[:cut]) + data[cut:]
    else:
        data = broken_bytes(random, data)
    return Input(len(data), lambda: convert(data), data[:200])


def convert(data: bytes) -> None:
    place = _laid({"a.gguf": data})
    _write(place / "a.gguf", place)


CHATS = json.dumps(
    {"passages": {"a": "Water boils.", "b": "Ice melts."},
     "questions": [{"about": "a", "ask": "At what?"}, {"ask": "Why?"}]}
).encode()  # fmt: skip


def chats(random: Random) -> Input:
    """The file of questions, or that of prompts."""
    if random.randrange(3):
        kind = broken_json if random.randrange(3) else broken_text
        data = kind(random, CHATS)
        return Input(len(data), lambda: _read(data, read_chats), data)
    data = broken_bytes(random, b"def a():\n    return 1\n\0class B:\n    pass\n\0")
    return Input(len(data), lambda: _read(data, _prompt), data)


def _prompt(path: Path) -> None:
    tokens = PromptText(path)(Request(0, 0, 10, 1, 1, text=1))
    assert tokens.shape == (10,)


def _read(data: bytes, how: Any) -> None:
    how(_laid({"a": data}) / "a")
