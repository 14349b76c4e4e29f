"""How many slots a request asks for at admission, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvviz.allocators.reserve import RESERVATIONS
from kvviz.records import Request
from tests.helpers import request
from tests.strategies import requests


@pytest.mark.parametrize(
    ("output", "limit", "rounded"),
    [
        (25, 500, 32),  # the next power of two
        (32, 500, 32),  # already one
        (33, 500, 64),
        (1, 500, 1),
        (25, 30, 30),  # never more than it may ask for
        (25, 25, 25),
    ],
)
def test_pow2(output: int, limit: int, rounded: int) -> None:
    """Pow2 rounds the output to this; the last token is never written, hence the -1."""
    assert RESERVATIONS["pow2"](request(0, 10, output, limit), 10) == 10 + rounded - 1


@pytest.mark.parametrize(
    ("name", "expected"), [("oracle", 34), ("pow2", 41), ("max", 109), ("exact", 10)]
)
def test_by_hand(name: str, expected: int) -> None:
    """Prompt 10, output 25, limit 100: 10 + {25, 32, 100} - 1, or the prompt alone."""
    assert RESERVATIONS[name](request(0, 10, 25, 100), 10) == expected


@given(requests(0, 200), st.data())
def test_reservation_bounds(asked: Request, data: st.DataObject) -> None:
    """A reservation is too small for what is known or will be, or more than the limit allows.

    `tokens` can be any number from the prompt to the life: a preempted request knows more.
    """
    tokens = data.draw(st.integers(asked.prompt_len, asked.life))
    need = {name: reserve(asked, tokens) for name, reserve in RESERVATIONS.items()}
    assert need["exact"] == tokens
    assert need["oracle"] == asked.life
    assert tokens <= need["oracle"] <= need["pow2"] <= need["max"]
    assert need["max"] == asked.prompt_len + asked.limit - 1
    assert need["pow2"] < asked.prompt_len + 2 * asked.output_len
