"""The byte model that the language model is compared with: interpolated Kneser-Ney smoothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz.model.corpus import EOT

SYMBOLS = EOT + 1


@dataclass(frozen=True)
class _Level:
    """Counts of one context length. A key is a base-257 number: the context, then one token.

    keys, counts: the pairs that occur, sorted, and how often. contexts, totals, followers: the
    contexts that occur, sorted, the sum of their counts and how many tokens follow them.
    """

    keys: np.ndarray
    counts: np.ndarray
    contexts: np.ndarray
    totals: np.ndarray
    followers: np.ndarray
    discount: float


def _grams(stream: np.ndarray, order: int) -> np.ndarray:
    """Key of every token with its context, int64 [len(stream)]; EOTs stand before the start."""
    padded = np.concatenate((np.full(order, EOT), stream)).astype(np.int64)
    keys = np.zeros(len(stream), dtype=np.int64)
    for offset in range(order + 1):
        keys = keys * SYMBOLS + padded[offset : offset + len(stream)]
    return keys


def _level(keys: np.ndarray, counts: np.ndarray) -> _Level:
    """Sums by context, and the discount n1 / (n1 + 2 n2) from pairs seen once and twice."""
    contexts, first, followers = np.unique(keys // SYMBOLS, return_index=True, return_counts=True)
    once, twice = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
    return _Level(
        keys=keys,
        counts=counts,
        contexts=contexts,
        totals=np.add.reduceat(counts, first),
        followers=followers,
        # Without pairs seen once the estimate is 0, which would leave nothing for unseen ones.
        discount=once / (once + 2 * twice) if once and twice else 0.5,
    )


def _find(table: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Index of each wanted value in a sorted table, and whether it is there at all."""
    index = np.minimum(np.searchsorted(table, wanted), len(table) - 1)
    return index, table[index] == wanted


@dataclass(frozen=True)
class NgramModel:
    """Next-token probabilities from the last `order` tokens, backed by every shorter context."""

    order: int
    levels: tuple[_Level, ...]

    @classmethod
    def fit(cls, stream: np.ndarray, order: int) -> NgramModel:
        """Count a token stream (ids 0 to 256). `order` is at most 6, so that keys fit 64 bits.

        Shorter contexts count each longer pair once (Kneser-Ney): what matters when a long
        context is new is in how many contexts a token was met, not how often.
        """
        keys, counts = np.unique(_grams(stream, order), return_counts=True)
        levels = [_level(keys, counts)]
        for length in range(order - 1, -1, -1):
            keys, counts = np.unique(keys % SYMBOLS ** (length + 1), return_counts=True)
            levels.append(_level(keys, counts))
        return cls(order, tuple(reversed(levels)))

    def probabilities(self, contexts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """p(token | context), float64 [N], from contexts [N, order] and tokens [N]."""
        keys = np.zeros(len(tokens), dtype=np.int64)
        for column in range(self.order):
            keys = keys * SYMBOLS + contexts[:, column].astype(np.int64)
        return self._probabilities(keys * SYMBOLS + tokens.astype(np.int64))

    def bits_per_byte(self, stream: np.ndarray) -> float:
        """Cost of a stream in bits, its end-of-text tokens included, over its bytes."""
        bits = -np.log2(self._probabilities(_grams(stream, self.order))).sum()
        return float(bits / np.count_nonzero(stream != EOT))

    def _probabilities(self, grams: np.ndarray) -> np.ndarray:
        """p of each full-length key, from the uniform distribution up to the longest context."""
        p = np.full(len(grams), 1.0 / SYMBOLS)
        for length, level in enumerate(self.levels):
            keys = grams % SYMBOLS ** (length + 1)
            at, known = _find(level.keys, keys)
            where, seen = _find(level.contexts, keys // SYMBOLS)
            total = level.totals[where]
            count = np.where(known, np.maximum(level.counts[at] - level.discount, 0.0), 0.0)
            spread = level.discount * level.followers[where]
            p = np.where(seen, (count + spread * p) / total, p)
        return p
