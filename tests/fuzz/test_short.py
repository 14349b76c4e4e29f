"""The short form: some hundred hostile inputs, the same ones each time. `python -m tests.fuzz` has
the long one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, attack

EXAMPLES = {
    "trace": 120, "scenario": 60, "config": 200, "settings": 100, "command": 20, "orders": 100,
    "recording": 8, "checkpoint": 5, "gguf": 30, "chats": 60,
}  # fmt: skip


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_input_is_taken_or_refused_in_a_line(name: str) -> None:
    """A file or an address could end in a traceback, a hang, or elsewhere on the disk."""

    @settings(max_examples=EXAMPLES[name])
    @given(st.randoms(use_true_random=False))
    def attacked(random) -> None:
        attack(name, random)

    attacked()
