"""Text to tokens and back, by the checkpoint's own tokenizer; and its chat template.

Two kinds: bytes (the shipped model: 0..255 and one end of text) and a `tokenizer.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from kvviz.errors import CheckpointError
from kvviz.model.families import CONFIG_NAME, read_json
from kvviz.model.render import render
from kvviz.shapes import END_OF_TEXT

TOKENIZER_NAME = "tokenizer.json"
_BYTE_VOCABULARY = END_OF_TEXT + 1


class Tokenizer(Protocol):
    """`end_tokens` end an answer; `start` stands before a text; `chat` renders one user turn."""

    end_tokens: frozenset[int]
    start: tuple[int, ...]
    chat: ChatTemplate | None

    def encode(self, text: str) -> np.ndarray:
        """Tokens int32 [tokens]; nothing is put before or after them."""

    def decode(self, tokens: Iterable[int]) -> bytes:
        """Text in UTF-8, markers included, the byte vocabulary's end of text left out."""


class ByteTokenizer:
    """A token is a byte."""

    end_tokens: frozenset[int] = frozenset({END_OF_TEXT})
    start: tuple[int, ...] = (END_OF_TEXT,)
    chat: ChatTemplate | None = None

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode("utf-8"), np.uint8).astype(np.int32)

    def decode(self, tokens: Iterable[int]) -> bytes:
        return bytes(token for token in tokens if token < END_OF_TEXT)


class ChatTemplate:
    """The markers that a chat model was trained with around a user's words."""

    def __init__(self, source: str, names: Mapping[str, str]) -> None:
        """`names`: bos_token and others that the template may write. Raises CheckpointError."""
        mark = "\x00"  # no template writes it, and no tokenizer needs it
        try:
            self.before, self.after = render(source, mark, names).split(mark)
        except ValueError as error:
            raise CheckpointError(
                f"the chat template can't render one user message ({error}). Remove it from the "
                "folder to serve plain text."
            ) from error


class FileTokenizer:
    """A Hugging Face `tokenizer.json`, with the ends and the chat template beside it."""

    def __init__(self, folder: Path) -> None:
        """Raises CheckpointError when a file is missing or damaged."""
        from tokenizers import Tokenizer as Loaded

        path = folder / TOKENIZER_NAME
        try:
            self._loaded = Loaded.from_file(str(path))
        except Exception as error:  # the library raises bare Exceptions
            raise CheckpointError(
                f"{path} can't be read as a tokenizer ({error}). Fetch it again with the weights."
            ) from error
        config = read_json(folder / CONFIG_NAME)
        words = _optional_json(folder / "tokenizer_config.json")
        self.end_tokens = _ends(config) | _ends(_optional_json(folder / "generation_config.json"))
        first = config.get("bos_token_id")
        if first is not None and not _is_token(first):
            raise CheckpointError(
                f"{folder / CONFIG_NAME}: bos_token_id {str(first)[:40]}: a token's number was "
                "expected. Take the config.json that belongs to these weights."
            )
        self.start = tuple(sorted(self.end_tokens))[:1] if first is None else (first,)
        self.chat = _chat(folder, words)

    @property
    def size(self) -> int:
        """One more than the largest token that it may give, or that stands before a text."""
        words = self._loaded.get_vocab(with_added_tokens=True)
        return max((*words.values(), *self.start), default=-1) + 1

    def encode(self, text: str) -> np.ndarray:
        return np.array(self._loaded.encode(text, add_special_tokens=False).ids, np.int32)

    def decode(self, tokens: Iterable[int]) -> bytes:
        return self._loaded.decode(list(tokens), skip_special_tokens=False).encode("utf-8")


def load_tokenizer(folder: Path, vocab_size: int) -> Tokenizer:
    """The folder's tokenizer; bytes where it has none and a vocabulary of 257.

    Raises CheckpointError.
    """
    if (folder / TOKENIZER_NAME).exists():
        tokenizer = FileTokenizer(folder)
        if tokenizer.size > vocab_size:
            raise CheckpointError(
                f"{folder / TOKENIZER_NAME} has {tokenizer.size:,} tokens, but the weights know "
                f"{vocab_size:,}. Take the tokenizer that belongs to these weights."
            )
        return tokenizer
    if vocab_size == _BYTE_VOCABULARY:
        return ByteTokenizer()
    raise CheckpointError(
        f"{folder} has no {TOKENIZER_NAME}, and its {vocab_size:,} tokens are no bytes. Put the "
        f"checkpoint's {TOKENIZER_NAME} beside its weights."
    )


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _is_token(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def _ends(config: Mapping[str, Any]) -> frozenset[int]:
    """`eos_token_id`: a number, a list, or nothing."""
    found = config.get("eos_token_id")
    ends = found if isinstance(found, list) else [] if found is None else [found]
    if not all(map(_is_token, ends)):
        raise CheckpointError(
            "eos_token_id: a token's number, or a list of them, was expected. Fetch config.json "
            "and generation_config.json again."
        )
    return frozenset(ends)


def _chat(folder: Path, words: Mapping[str, Any]) -> ChatTemplate | None:
    """From `chat_template.jinja`, or from `tokenizer_config.json` where that is missing."""
    path = folder / "chat_template.jinja"
    try:
        source = path.read_text(encoding="utf-8") if path.exists() else words.get("chat_template")
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} can't be read ({error}). Fetch it again, or remove it to serve plain text."
        ) from error
    if isinstance(source, list):  # several by name
        named = (item for item in source if isinstance(item, dict))
        source = next((i.get("template") for i in named if i.get("name") == "default"), None)
    if not source:
        return None
    if not isinstance(source, str):
        raise CheckpointError(
            f"the chat template of {folder} is no text. Remove it to serve plain text."
        )
    return ChatTemplate(source, {key: _word(words.get(key)) for key in ("bos_token", "eos_token")})


def _word(token: Any) -> str:
    """A special token as text; configs hold it bare or with its properties."""
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")
