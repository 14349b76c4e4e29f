"""Words of files, addresses and messages are shown as text: nowhere as HTML, links or pictures."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from streamlit.testing.v1 import AppTest

from kvviz.html.document import report
from kvviz.recording.files import unpack
from kvviz.ui.text import plain
from kvviz.views import replay, sweep
from kvviz.views.theme import LIGHT, as_text
from tests.fuzz.damage import SCRIPT, WORDS
from tests.fuzz.recordings import MANIFEST, members, zipped

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "kvviz").rglob("*.js"))
PAGES = sorted([*(ROOT / "kvviz/ui").glob("*.py"), *(ROOT / "pages").glob("*.py")])


@pytest.mark.parametrize("text", [SCRIPT, "![a](https://b.c/d.png)", "[a](b)", "<b>a</b>", "`a`",
                                  "**a** _b_ ~~c~~", "# a", "- a", "1. a", "a\n===", "> a", "a|b",
                                  "&lt;b&gt;", "\\*a\\*", "https://a.example", *WORDS])  # fmt: skip
def test_markdown_shows_the_text_itself(text: str) -> None:
    """A file's name would become a picture that is fetched from anywhere."""
    text = " ".join(text.replace("\ud800", "").replace("\0", "").split())
    shown = MarkdownIt("gfm-like", {"linkify": False}).render(plain(text))
    assert not re.search(r"<(?!/?p>)", shown), shown
    whole = re.sub(r"</?p>|\u2060", "", shown).strip()
    for sign, code in (("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("&", "&amp;")):
        whole = whole.replace(code, sign)
    assert whole == text


def test_streamlits_own_marks_are_text_too() -> None:
    assert plain(":red[a] $x$ :material/home:") == r"\:red\[a\] \$x\$ \:material/home:"
    assert "https://" not in plain("see https://a.example")
    assert plain("memory.max_len 12: no") == "memory.max_len 12: no"


def test_plotly_makes_no_markup_of_names() -> None:
    lanes = {SCRIPT: {"lane": "paged", "refused": dict.fromkeys(("never", "capacity", "fragmented",
                                                                 "queued"), 0)}}  # fmt: skip
    assert "<img" not in json.dumps(replay.refusals(lanes, LIGHT))
    figure = sweep.lines("mix.trace", [SCRIPT], {}, LIGHT, title="t")
    assert "<img" not in json.dumps(figure)
    assert as_text("<a href='b'>&") == "&lt;a href='b'>&amp;"


def test_the_report_escapes_all_that_a_recording_says() -> None:
    """A report is opened as a file, where a script would run."""
    parts = dict(members())
    manifest = json.loads(parts[MANIFEST])
    for name in ("device", "machine", "when", "stream_hash", "kvviz"):
        manifest[name] = f"{name}{SCRIPT}</title></script>"
    manifest["config"]["preset"] = SCRIPT
    manifest["config"]["model"] = f"a/{SCRIPT}"
    manifest["config"]["dry"] = False
    manifest["report"]["lanes"]["paged"]["admitted"] = SCRIPT
    page = report(unpack(zipped({**parts, MANIFEST: json.dumps(manifest).encode()})))
    own = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert own.count("machine&lt;img src=x") == 1
    assert "<img" not in own and 'onerror="' not in own
    assert "default-src 'none'" in page and page.count("<script") == page.count("</script>") == 3


def test_what_a_scenario_says_is_text_on_its_page(monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    page = AppTest.from_file(str(ROOT / "pages/scenario.py"), default_timeout=60).run()
    file = {
        "title": SCRIPT,
        "story": "![a](https://b.c)",
        "capacity": 64,
        "layout": {"kind": "contiguous"},
        "ops": [["allocate", SCRIPT, 90], ["free", SCRIPT]],
    }
    page.file_uploader[0].upload("<b>.json", json.dumps(file).encode(), "application/json").run()
    assert list(page.exception) == []
    words = [node.value for kind in ("markdown", "warning", "info", "error", "caption")
             for node in getattr(page, kind)]  # fmt: skip
    assert any(r"\<img src=x" in text for text in words)
    assert not any(re.search(r"(?<!\\)<img|(?<!\\)\[a", text) for text in words)
    for chart in page.get("plotly_chart"):
        assert "<img" not in chart.proto.spec.replace("&lt;", "")


KEYS = ("lanes", "marks")  # joined in the line before, of escaped words and the theme's colours


def _safe_html(told: ast.expr) -> bool:
    """A constant of the module; or words put in through `escape`."""
    if isinstance(told, ast.Name):
        return told.id.isupper()
    if not isinstance(told, ast.JoinedStr):
        return False
    put_in = [part.value for part in told.values if isinstance(part, ast.FormattedValue)]
    return all(
        (isinstance(value, ast.Name) and value.id in KEYS)
        or (isinstance(value, ast.Call) and ast.unparse(value.func) == "escape")
        for value in put_in
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_show_messages_as_text(path: Path) -> None:
    """A message quotes what was wrong, and Streamlit would read that as Markdown."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        assert not any(word.arg == "unsafe_allow_html" for word in node.keywords), node.lineno
        if node.func.attr == "html":
            assert all(map(_safe_html, node.args)), node.lineno
        if node.func.attr in ("error", "warning", "info", "toast") and node.args:
            told = ast.unparse(node.args[0])
            assert told != "str(error)" and not told.endswith(".error"), (node.lineno, told)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_write_text_as_text(path: Path) -> None:
    """Generated text goes to the browser; as markup it could be a script."""
    source = re.sub(r"/\*.*?\*/|^\s*//.*$", "", path.read_text("utf-8"), flags=re.S | re.M)
    for way in ("outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
                "createContextualFragment", "DOMParser", "setHTML", "srcdoc"):  # fmt: skip
        assert way not in source, way
    assert len(re.findall(r"\.innerHTML\s*=\s*`", source)) == source.count("innerHTML")
