"""Addresses that nobody would write, on every page: a message or a default, never a traceback."""

from __future__ import annotations

from random import Random

import pytest
from streamlit.testing.v1 import AppTest

from tests.fuzz.damage import NUMBERS, WORDS, one_of

PAGES = ("live", "lesson", "replay", "sweep", "scenario", "recording", "capacity", "paper")
# Read by the page itself, beside what belongs to its controls
OWN = ("step", "trace", "kept", "select", "hole", "pin", "theme", "zoom", "lanes", "seed", "")
KINDS = (
    "selectbox", "number_input", "slider", "select_slider", "radio", "toggle", "checkbox",
    "text_input", "text_area", "multiselect", "button_group",
)  # fmt: skip


def hostile(random: Random, page: AppTest, count: int) -> dict[str, str]:
    """Odd values for some of the page's parameters, now and then one that it offers."""
    widgets = [widget for kind in KINDS for widget in page.get(kind) if widget.key]
    names = [*(widget.key for widget in widgets), *OWN]
    offered = [str(o) for widget in widgets for o in getattr(widget, "options", ())] or [""]
    address = {}
    for name in random.sample(names, min(count, len(names))):
        value = one_of(random, (NUMBERS, WORDS, offered)[random.randrange(3)])
        text = value if isinstance(value, str) else f"{value!r:.60}"
        address[name] = text.encode("utf-8", "replace").decode()  # no address has half a character
    return address


@pytest.fixture
def attack(open_page, root, tmp_path):
    """`attack(page, inputs)`: visits with such addresses, and what came of each that went wrong."""

    def visit(name: str, inputs: int) -> list[object]:
        script = tmp_path / f"{name}.py"  # as app.py runs a page
        script.write_text(
            "import runpy\nfrom kvviz.ui.address import drop_endless_numbers\n"
            f"drop_endless_numbers()\nrunpy.run_path({str(root / 'pages' / f'{name}.py')!r})\n"
        )
        plain, wrong = open_page(script), []
        assert list(plain.exception) == []
        for seed in range(inputs):
            address = hostile(Random(f"{name} {seed}"), plain, 1 + seed % 4)
            page = open_page(script, **address)
            if list(page.exception):
                wrong.append((address, page.exception[0].value))
        return wrong

    return visit


@pytest.mark.parametrize("endless", ["inf", "-Infinity", "nan", "1e999"])
def test_a_number_without_end_is_dropped(open_page, endless):
    """Streamlit would fail on it, and show that."""
    page = open_page("app.py", seed=endless, rate="0.3")
    assert list(page.exception) == []
    assert dict(page.query_params) == {"rate": "0.3"}


@pytest.mark.parametrize("name", PAGES)
def test_an_odd_address_is_taken_or_refused_in_words(attack, name):
    """A mistyped link would end in a traceback."""
    assert attack(name, 2) == []


@pytest.mark.long
@pytest.mark.parametrize("name", PAGES)
def test_many_odd_addresses(attack, name):
    """One that the few inputs above do not hold would end in a traceback."""
    assert attack(name, 100) == []
