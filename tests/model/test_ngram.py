"""The byte model: probabilities that sum to one, and a case counted by hand."""

import math

import numpy as np
import pytest

from kvviz.model.corpus import EOT
from kvviz.model.ngram import SYMBOLS, NgramModel

A, B, C = 97, 98, 99


def test_a_case_counted_by_hand() -> None:
    """Stream a a b a, order 1.

    Pairs after EOT, a, a, b: (EOT a) 1, (a a) 1, (a b) 1, (b a) 1: all once, so the discount takes
    its fallback 0.5. Order 0 counts each pair once: a follows three contexts, b one; one count is
    1 and none is 2, so 0.5 again.
    """
    model = NgramModel.fit(np.array([A, A, B, A]), order=1)
    uniform = 1 / SYMBOLS
    spread = 0.5 * 2 / 4 * uniform
    p0 = {A: 2.5 / 4 + spread, B: 0.5 / 4 + spread, C: spread}
    after_a = {A: (0.5 + 1.0 * p0[A]) / 2, B: (0.5 + 1.0 * p0[B]) / 2, C: 1.0 * p0[C] / 2}
    after_b = {A: 0.5 + 0.5 * p0[A], B: 0.5 * p0[B]}
    for context, expected in ((A, after_a), (B, after_b), (C, p0)):
        for token, p in expected.items():
            got = model.probabilities(np.array([[context]]), np.array([token]))
            assert got[0] == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize("order", [0, 1, 3])
def test_probabilities_sum_to_one(order: int) -> None:
    stream = np.random.default_rng(1).integers(90, 100, 3000)
    stream[::50] = EOT
    model = NgramModel.fit(stream, order)
    seen, fresh = stream[100 : 100 + order], np.full(order, 7)
    for context in (seen, fresh, np.append(fresh[1:], seen[-1:])):
        contexts = np.tile(context, (SYMBOLS, 1)).reshape(SYMBOLS, order)
        p = model.probabilities(contexts, np.arange(SYMBOLS))
        assert p.min() > 0
        assert p.sum() == pytest.approx(1.0, abs=1e-12)


def test_bits_per_byte_charge_end_of_text_to_the_bytes() -> None:
    model = NgramModel.fit(np.array([A, EOT, A, EOT]), order=1)
    stream = np.array([A, EOT])
    p = model.probabilities(np.array([[EOT], [A]]), stream)
    assert model.bits_per_byte(stream) == pytest.approx(-math.log2(p[0] * p[1]))


def test_longer_contexts_help_on_a_regular_text() -> None:
    text = np.frombuffer(b"for name in names:\n    print(name)\n" * 40, dtype=np.uint8)
    bits = [NgramModel.fit(text, order).bits_per_byte(text) for order in (0, 1, 2, 3)]
    assert bits == sorted(bits, reverse=True)
    assert bits[3] < 0.5 < bits[0]
