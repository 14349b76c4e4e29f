"""The short form: some hundred hostile inputs, the same ones each time. `python -m tests.fuzz` has
the long one."""

from __future__ import annotations

from importlib import import_module

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.guided import READERS, guarded
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


@pytest.mark.parametrize("name", READERS)
def test_a_guided_search_begins_with_good_input(name: str) -> None:
    """The search would look at nothing but refusals, or not begin at all."""
    reader = READERS[name]
    module = import_module(reader.module)
    good = reader.good(module)
    assert good
    reader.call(module, good[0])
    guarded(reader, module)(good[-1][:-9])
