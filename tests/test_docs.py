"""The documents say what the code says, and their links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kvviz.cli import _parser
from kvviz.config import RunConfig, parse_overrides
from kvviz.lesson.terms import ANCHORS, FORMULAS, SYMBOLS, WORDS
from kvviz.views.number import Number
from kvviz.views.numbers import numbers
from kvviz.views.occupancy import EXTRAS
from tests.views.made import snapshot
from tests.views.test_numbers import F0, PAGES

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
COUNTED = {"tokens_per_second": 5.0, "allocations": 10, "allocations_with_remainder": 5}
_COMMAND = re.compile(r"python -m kvviz ((?:[^\n`]|\\\n)+)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def definitions() -> str:
    return (ROOT / "docs/definitions.md").read_text("utf-8")


def rows(text: str) -> list[list[str]]:
    """The cells of every line of every table."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def head(words: str) -> str:
    """What a number's part is, without its value: N for each value inside."""
    return re.sub(r"\d[\d,.]*", "N", words.partition(": ")[0])


def in_letters(cell: str) -> list[str]:
    return [a or b for a, b in re.findall(r"``(.+)``|`([^`]+)`", cell)]


def same(letters: str, formula: str) -> bool:
    """The formula as it is shown has values after its letters, or only some of the letters when
    the number is n/a."""
    parts = letters.split(" beside ")
    return formula == parts[-1] or (
        formula.startswith(parts[0]) and all(part in formula for part in parts)
    )


def test_every_term_is_defined_as_on_the_page(definitions):
    """A reader of the document would take away another formula than the page's."""
    found = rows(definitions)
    for term in (*WORDS, *FORMULAS):
        formula = f"`{term.formula}`" if term.formula else ""
        assert [term.name, formula, term.says, term.source] in found
    assert SYMBOLS in definitions


@pytest.mark.parametrize(
    "found", [numbers(snapshot(F0), 2048, COUNTED), numbers(snapshot(PAGES, grain=16), 32, COUNTED)]
)
def test_every_number_is_defined_as_it_is_shown(definitions, found: list[Number]):
    """The hover would divide by something else than the document."""
    by_name = {row[0]: row for row in rows(definitions) if len(row) == 6}
    for each in found:
        _, formula, above, below, unit, source = by_name[each.name]
        assert any(same(words, each.formula) for words in in_letters(formula)), each.name
        assert each.source == source
        assert unit
        for text, cell in ((each.numerator, above), (each.denominator, below)):
            shown, said = head(text), re.sub(r"\d[\d,.]*", "N", cell)
            assert shown.startswith(said) or (text and said.startswith(f"{shown}: ")) or not text


def test_every_number_of_a_page_is_there(definitions):
    """A number could be shown that nobody defined."""
    defined = {row[0] for row in rows(definitions)}
    assert ANCHORS.keys() <= defined
    for label, _, what in EXTRAS.values():
        assert [label, what] in [row[:2] for row in rows(definitions)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    """A link of a document would end in a page that is not there."""
    for target in _LINK.findall(document.read_text("utf-8")):
        if target.startswith("http"):
            continue
        file, _, anchor = target.partition("#")
        where = (document.parent / file) if file else document
        assert where.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.+)$", where.read_text("utf-8"), re.MULTILINE)
            assert anchor in [_anchor(title) for title in titles], target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_are_taken(document, capsys):
    """A reader would copy a line that the command line refuses."""
    text = document.read_text("utf-8").replace("\\\n", " ")
    for line in _COMMAND.findall(text):
        words = shlex.split(line.rstrip(".,;)"), comments=True)
        words = ["1000" if word == "N" else word for word in words]
        if "--help" in words or words == ["train"]:  # which end there, or have their own parser
            continue
        try:
            args = _parser().parse_args(words)
        except SystemExit:
            pytest.fail(f"{line}: {capsys.readouterr().err}")
        RunConfig().replace(parse_overrides(getattr(args, "settings", [])))


def test_the_readme_names_every_document():
    """A document would be found by nobody."""
    named = set(_LINK.findall((ROOT / "README.md").read_text("utf-8")))
    assert {f"docs/{path.name}" for path in DOCUMENTS[1:]} <= {n.partition("#")[0] for n in named}


def _anchor(title: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
