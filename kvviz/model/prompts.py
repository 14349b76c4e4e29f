"""Prompts: real text of exactly the wanted length, fixed by `request.text`.

A model that continues text gets documents from `data/prompts.txt`; one that was trained to chat
gets a question from `data/chats.json` between its own markers, after as much reading as fills
the length.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kvviz.errors import CheckpointError
from kvviz.model.corpus import read_prompts
from kvviz.model.tokens import ByteTokenizer, ChatTemplate, Tokenizer
from kvviz.records import Request

DATA = Path(__file__).resolve().parents[2] / "data"
PROMPTS = DATA / "prompts.txt"
CHATS = DATA / "chats.json"
BREAK = "\n\n"
SHORTEST_READING = 48  # tokens
_NO_WORDS = (
    "the tokenizer makes no tokens of plain text. Take the tokenizer.json that belongs to the "
    "weights."
)

Prompts = Callable[[Request], np.ndarray]


def prompts_for(tokenizer: Tokenizer) -> Prompts:
    """What makes prompts for a model with this tokenizer. Raises CheckpointError."""
    if tokenizer.chat is None:
        return PromptText(tokenizer=tokenizer)
    return ChatPrompts(tokenizer, tokenizer.chat)


class PromptText:
    """All documents as one int32 array [tokens], each after the token that starts a text.

    A prompt starts at the head of a document and runs on into the next one when it is longer.
    """

    def __init__(self, path: Path = PROMPTS, tokenizer: Tokenizer | None = None) -> None:
        tokenizer = tokenizer or ByteTokenizer()
        try:
            documents = [document.decode("utf-8") for document in read_prompts(path)]
            if not documents:
                raise ValueError("no document is in it")
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{path} can't be read: it holds the text of the prompts ({error}). "
                "Restore it from the repository, or `python -m kvviz train` writes it."
            ) from error
        pieces = [_after(tokenizer.start, tokenizer.encode(text)) for text in documents]
        if not all(map(len, pieces)):
            raise CheckpointError(_NO_WORDS)
        self._tokens = np.concatenate(pieces)
        self._starts = np.cumsum([0, *(len(piece) for piece in pieces[:-1])])

    def __call__(self, request: Request) -> np.ndarray:
        """Tokens int32 [prompt_len]: the shared parts, each from the document that its key
        names, then the request's own, from the document that `request.text` names."""
        own = request.prompt_len - sum(length for _, length in request.shared)
        parts = [*request.shared, (request.text, own)]
        return np.concatenate([self._read(text, length) for text, length in parts])

    def _read(self, text: int, length: int) -> np.ndarray:
        start = self._starts[text % len(self._starts)]
        return np.take(self._tokens, np.arange(start, start + length), mode="wrap")


class Chat(NamedTuple):
    """A question as tokens, and where the reading that belongs to it ends: any end will do
    (-1) for a question about nothing that is read."""

    question: np.ndarray
    end: int
    size: int


class ChatPrompts:
    """One user turn a prompt: reading, then a question, between the template's markers.

    The prompt is markers + the last tokens of the reading + question + markers. The reading is
    all passages in a ring, cut where the passage that the question is about ends, so it always
    stands right before its question. Questions about a passage are asked where one fits whole,
    others where none does; room for less than two sentences is left blank, since the end of one
    would be answered too. A prompt too short for the shortest question is the end of it.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate, path: Path = CHATS) -> None:
        """Raises CheckpointError when the file is missing or damaged."""
        passages, questions = read_chats(path)
        blank = tokenizer.encode("\n")
        if not len(blank):
            raise CheckpointError(_NO_WORDS)
        self._blank = blank[-1]
        self._before = tokenizer.encode(template.before)
        self._after = tokenizer.encode(template.after)
        pieces = [tokenizer.encode(text + BREAK) for text in passages.values()]
        if not all(map(len, pieces)):
            raise CheckpointError(_NO_WORDS)
        self._reading = np.concatenate(pieces)
        self._ends = np.cumsum([len(piece) for piece in pieces])
        places = {name: i for i, name in enumerate(passages)}
        markers = len(self._before) + len(self._after)
        chats = []
        for about, text in questions:
            tokens = tokenizer.encode(text)
            own = len(pieces[places[about]]) if about else 0
            end = int(self._ends[places[about]]) if about else -1
            chats.append(Chat(tokens, end, markers + own + len(tokens)))
        self._chats = sorted(chats, key=lambda chat: (chat.end >= 0, chat.size))
        self._sizes = np.array([chat.size for chat in self._chats])
        self._plain = sum(chat.end < 0 for chat in self._chats)

    def __call__(self, request: Request) -> np.ndarray:
        """Tokens int32 [prompt_len]; which question and what is read is fixed by
        `request.text` and the length. Shared parts, passages that their keys name, come first."""
        shared = [self._passage(key, length) for key, length in request.shared]
        own = request.prompt_len - sum(length for _, length in request.shared)
        return np.concatenate([*shared, self._turn(own, request.text)])

    def _passage(self, key: int, length: int) -> np.ndarray:
        start = int(self._ends[key % len(self._ends)])
        return np.take(self._reading, np.arange(start, start + length), mode="wrap")

    def _turn(self, length: int, text: int) -> np.ndarray:
        chat = self._choose(length, text)
        room = length - len(self._before) - len(chat.question) - len(self._after)
        reading = self._read(chat, text, max(room, 0))
        whole = np.concatenate([self._before, reading, chat.question, self._after])
        return whole[len(whole) - length :]

    def _choose(self, length: int, text: int) -> Chat:
        plain = np.searchsorted(self._sizes[: self._plain], length, side="right")
        about = np.searchsorted(self._sizes[self._plain :], length, side="right")
        if about:
            return self._chats[self._plain + text % int(about)]
        return self._chats[text % int(plain) if plain else 0]

    def _read(self, chat: Chat, text: int, count: int) -> np.ndarray:
        """The last `count` tokens of the ring of passages before the chat's end, or blank lines."""
        if chat.end < 0 and count < SHORTEST_READING:
            return np.full(count, self._blank, np.int32)
        end = chat.end if chat.end >= 0 else int(self._ends[text % len(self._ends)])
        return np.take(self._reading, np.arange(end - count, end), mode="wrap")


def read_chats(path: Path) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Passages by name, and questions as (passage it is about or "", text).

    Raises CheckpointError.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        passages = {name: str(text) for name, text in found["passages"].items()}
        questions = [(item.get("about", ""), str(item["ask"])) for item in found["questions"]]
        unknown = [about for about, _ in questions if about and about not in passages]
        if unknown or not passages or not questions:
            raise ValueError(f"no passage named {unknown}" if unknown else "nothing to ask")
        return passages, questions
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{path} can't be read: it holds what chat models are asked ({error}). "
            "Restore it from the repository."
        ) from error


def _after(start: tuple[int, ...], tokens: np.ndarray) -> np.ndarray:
    return np.concatenate([np.array(start, np.int32), tokens])
