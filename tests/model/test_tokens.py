"""Tokenizers, chat templates and prompts of exactly the wanted length."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from kvviz.errors import CheckpointError
from kvviz.model.prompts import (
    CHATS,
    PROMPTS,
    ChatPrompts,
    Prompts,
    PromptText,
    prompts_for,
    read_chats,
)
from kvviz.model.tokens import ByteTokenizer, ChatTemplate, FileTokenizer, load_tokenizer
from tests.helpers import request

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def write_tokenizer(folder: Path, **config: object) -> Path:
    """A byte-level tokenizer without merges, two markers, and the ends that `config` names."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    made.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 257, **config}))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_tokenizer(tmp_path)


@pytest.fixture(scope="module")
def chatting(tmp_path_factory: pytest.TempPathFactory) -> FileTokenizer:
    folder = write_tokenizer(tmp_path_factory.mktemp("chat"))
    (folder / "chat_template.jinja").write_text(CHATML)
    return FileTokenizer(folder)


def test_text_comes_back(folder: Path) -> None:
    tokenizer = load_tokenizer(folder, 258)
    text = "Grüße, 12 bytes\n<|im_end|>"
    tokens = tokenizer.encode(text)
    assert (tokens.dtype, tokens[-1]) == (np.int32, 257)
    assert tokenizer.decode(tokens.tolist()) == text.encode()


def test_bytes_come_back() -> None:
    tokens = ByteTokenizer().encode("Grüße")
    assert ByteTokenizer().decode([*tokens.tolist(), 256]) == "Grüße".encode()


@pytest.mark.parametrize(
    ("config", "generation", "ends"),
    [
        ({"eos_token_id": 257}, None, {257}),
        ({"eos_token_id": [256, 257]}, {"eos_token_id": 3}, {3, 256, 257}),
        ({"eos_token_id": None}, {"eos_token_id": [5, 6]}, {5, 6}),
    ],
)
def test_every_end_counts(
    config: dict, generation: dict | None, ends: set[int], tmp_path: Path
) -> None:
    """Chat models name the end of a turn in one file and the end of text in the other."""
    write_tokenizer(tmp_path, **config)
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    assert FileTokenizer(tmp_path).end_tokens == ends


def test_missing_and_damaged_tokenizers_are_named(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="has 258 tokens, but the weights know 200"):
        load_tokenizer(folder, 200)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json can't be read"):
        load_tokenizer(folder, 258)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"no tokenizer\.json"):
        load_tokenizer(folder, 258)
    assert isinstance(load_tokenizer(folder, 257), ByteTokenizer)


@pytest.mark.parametrize("where", ["chat_template.jinja", "tokenizer_config.json"])
def test_template_is_found_and_split(folder: Path, where: str) -> None:
    assert FileTokenizer(folder).chat is None
    template = "{{ bos_token }}" + CHATML
    words = {"bos_token": {"content": "<s>"}, "chat_template": template}
    if where == "chat_template.jinja":
        (folder / where).write_text(words.pop("chat_template"))
    (folder / "tokenizer_config.json").write_text(json.dumps(words))
    chat = FileTokenizer(folder).chat
    assert (chat.before, chat.after) == (
        "<s><|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\n",
    )


@pytest.mark.parametrize(
    "source", ["{% for %}", "{{ raise_exception('no') }}", "none", "{{ messages[0].content * 2 }}"]
)  # fmt: skip
def test_a_template_that_cannot_render_is_named(source: str) -> None:
    with pytest.raises(CheckpointError, match="chat template can't render"):
        ChatTemplate(source, {})


def test_a_template_cannot_reach_the_process() -> None:
    """A checkpoint from anywhere runs its template here."""
    with pytest.raises(CheckpointError, match="SecurityError"):
        ChatTemplate("{{ ''.__class__.__mro__[1].__subclasses__() }}{{ messages[0].content }}", {})


@pytest.fixture(scope="module")
def chats(chatting: FileTokenizer) -> Prompts:
    return prompts_for(chatting)


@given(length=st.integers(1, 900), text=st.integers(0, 2**31))
def test_chat_prompts_have_their_length(
    chatting: FileTokenizer, chats: Prompts, length: int, text: int
) -> None:
    """The request's length is what both memories are planned by; the turn must stay whole."""
    tokens = chats(request(text, length, 1))
    assert (tokens.dtype, len(tokens)) == (np.int32, length)
    assert np.array_equal(tokens, chats(request(text, length, 1)))
    after = chatting.encode(chatting.chat.after)
    assert np.array_equal(tokens[-len(after) :], after[-length:])
    if length > 90:
        assert chatting.decode(tokens).startswith(chatting.chat.before.encode())


def test_a_question_stands_after_its_passage(chatting: FileTokenizer) -> None:
    """Asked about what it has not read, no model can answer."""
    passages, questions = read_chats(CHATS)
    prompts = ChatPrompts(chatting, chatting.chat)
    seen = set()
    for text in range(400):
        words = chatting.decode(prompts(request(text, 2000, 1))).decode()
        about, ask = next((a, q) for a, q in questions if q + chatting.chat.after in words)
        assert f"{passages[about]}\n\n{ask}" in words
        seen.add(ask)
    assert len(seen) == sum(bool(about) for about, _ in questions)


def test_what_is_asked() -> None:
    """At least 60 questions, none twice, none about nothing; passages long and short."""
    passages, questions = read_chats(CHATS)
    assert len(questions) >= 60 and len({q for _, q in questions}) == len(questions)
    assert {about for about, _ in questions if about} == set(passages)
    lengths = [len(q) for _, q in questions]
    assert min(lengths) < 30 and max(lengths) > 120


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"passages": {}, "questions": []}',
                '{"passages": {"a": "b"}, "questions": [{"about": "c", "ask": "d"}]}']
)  # fmt: skip
def test_damaged_chats_are_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    path.write_text(content)
    with pytest.raises(CheckpointError, match=r"chats\.json can't be read"):
        read_chats(path)


def test_plain_text_by_any_tokenizer(folder: Path) -> None:
    """A model that was not trained to chat continues documents, each after its start token."""
    first = PROMPTS.read_bytes().split(b"\0")[0]
    tokenizer = FileTokenizer(folder)
    prompts = prompts_for(tokenizer)
    tokens = prompts(request(0, 60, 1))
    assert tokens[0] == 257
    assert tokenizer.decode(tokens[1:]) == first[:59]
    assert PromptText()(request(0, 60, 1)).tolist() == [256, *first[:59]]
