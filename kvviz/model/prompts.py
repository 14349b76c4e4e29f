"""Prompts: real text of the wanted length, cut from `data/prompts.txt`.

A prompt starts at the head of a document, after the end-of-text token, and runs on into the
next document (with an end-of-text token between) when it is longer.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kvviz.errors import CheckpointError
from kvviz.model.corpus import read_prompts
from kvviz.records import Request
from kvviz.shapes import END_OF_TEXT

PROMPTS = Path(__file__).resolve().parents[2] / "data" / "prompts.txt"


class PromptText:
    """All documents as one int32 array [tokens] in which each is preceded by end of text."""

    def __init__(self, path: Path = PROMPTS) -> None:
        try:
            documents = read_prompts(path)
        except OSError as error:
            raise CheckpointError(
                f"{path} is missing: it holds the text of the prompts. "
                "`python -m kvviz train` writes it."
            ) from error
        pieces = [np.concatenate([[END_OF_TEXT], np.frombuffer(d, np.uint8)]) for d in documents]
        self._tokens = np.concatenate(pieces).astype(np.int32)
        self._starts = np.flatnonzero(self._tokens == END_OF_TEXT)

    def __call__(self, request: Request) -> np.ndarray:
        """Tokens int32 [prompt_len]: the shared parts, each from the document that its key
        names, then the request's own, from the document that `request.text` names."""
        own = request.prompt_len - sum(length for _, length in request.shared)
        parts = [*request.shared, (request.text, own)]
        return np.concatenate([self._read(text, length) for text, length in parts])

    def _read(self, text: int, length: int) -> np.ndarray:
        start = self._starts[text % len(self._starts)]
        return np.take(self._tokens, np.arange(start, start + length), mode="wrap")
