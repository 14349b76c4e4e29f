"""How many slots a contiguous layout asks for at admission.

`tokens` are those known now (the prompt, and what was generated before a preemption). Names as
in the PagedAttention paper (SOSP '23, section 6.1): Oracle knows the output's true length, Pow2
rounds it up to the next power of two, Max takes what the request may ask for at most. Exact
reserves what is known and grows.
"""

from __future__ import annotations

from collections.abc import Callable

from kvviz.records import Request

Reservation = Callable[[Request, int], int]


def oracle(request: Request, tokens: int) -> int:
    return max(request.life, tokens)


def pow2(request: Request, tokens: int) -> int:
    rounded = 1 << (request.output_len - 1).bit_length()
    return max(
        request.prompt_len + min(rounded, max(request.limit, request.output_len)) - 1, tokens
    )


def maximum(request: Request, tokens: int) -> int:
    return max(request.prompt_len + request.limit - 1, tokens)


def exact(_request: Request, tokens: int) -> int:
    return tokens


RESERVATIONS: dict[str, Reservation] = {
    "oracle": oracle,
    "pow2": pow2,
    "max": maximum,
    "exact": exact,
}
