"""The corpus: real documents, whole modules held out, the same order every time."""

import ast
import textwrap
from pathlib import Path

import numpy as np
import pytest

from kvviz.model import corpus
from kvviz.model.corpus import EOT, Corpus, Document

SOURCE = '''
import os

@first
@second(
    1
)
def decorated():
    """é"""


async def waiting():
    pass


class Small:
    x = 1
'''


@pytest.fixture(scope="module")
def library() -> Corpus:
    return corpus.load()


def test_definitions_are_functions_and_classes_with_their_decorators() -> None:
    texts = [text.decode() for text in corpus.definitions(SOURCE)]
    assert [text.split("\n")[0] for text in texts] == [
        "@first",
        "async def waiting():",
        "class Small:",
    ]
    assert texts[0] == '@first\n@second(\n    1\n)\ndef decorated():\n    """é"""\n'


def test_a_long_class_gives_its_methods() -> None:
    body = f'    """{"x" * corpus.MAX_CLASS_BYTES}"""\n'
    source = (
        f"class Long:\n{body}    def a(self):\n        pass\n\n    def b(self):\n        pass\n"
    )
    texts = list(corpus.definitions(source))
    assert texts == [b"    def a(self):\n        pass\n", b"    def b(self):\n        pass\n"]


def test_a_form_feed_does_not_shift_lines() -> None:
    assert list(corpus.definitions("x = 1\n\f\ndef f():\n    pass\n")) == [b"def f():\n    pass\n"]


def test_modules_that_cannot_be_read_have_no_documents(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"# \xe9\ndef f(): pass\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    assert corpus.module_documents(tmp_path, "latin.py") == []
    assert corpus.module_documents(tmp_path, "broken.py") == []


def test_tests_and_caches_are_skipped(tmp_path: Path) -> None:
    for name in ("a.py", "pkg/b.py", "pkg/test/c.py", "test/d.py", "site-packages/e.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("def f():\n    pass\n")
    assert corpus.module_paths(tmp_path) == ["a.py", "pkg/b.py"]


def test_library_documents_are_python(library: Corpus) -> None:
    documents = library.train + library.held_out
    assert len(documents) > 5000
    for document in documents[::97]:
        ast.parse(textwrap.dedent(document.text.decode("utf-8")))
        assert b"\0" not in document.text


def test_held_out_modules_are_never_in_training(library: Corpus) -> None:
    learnt = {document.module for document in library.train}
    kept = {document.module for document in library.held_out}
    assert kept and not learnt & kept
    assert 0.02 < len(kept) / len(learnt | kept) < 0.10


def test_the_split_does_not_depend_on_the_run() -> None:
    assert [m for m in ("ast.py", "typing.py", "os.py", "json/decoder.py") if corpus.is_held_out(m)]
    assert corpus.is_held_out("typing.py") and not corpus.is_held_out("os.py")


def test_loading_twice_gives_the_same(tmp_path: Path) -> None:
    for name in ("b.py", "a.py", "c/d.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"def {name[0]}():\n    pass\n")
    once = corpus.load(tmp_path)
    assert once == corpus.load(tmp_path)
    modules = [document.module for document in once.train + once.held_out]
    assert sorted(modules) == ["a.py", "b.py", "c/d.py"]


def test_every_document_ends_with_eot() -> None:
    stream = corpus.pack([Document("m.py", "é".encode()), Document("m.py", b"ab")])
    assert stream.tolist() == [0xC3, 0xA9, EOT, ord("a"), ord("b"), EOT]
    assert stream.dtype == np.int16
    assert corpus.decode(stream.tolist()) == "éab"


def test_prompts_are_whole_held_out_documents(library: Corpus, tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    count = corpus.write_prompts(library.held_out, path, limit_bytes=20_000)
    prompts = corpus.read_prompts(path)
    assert len(prompts) == count > 5
    assert 15_000 < path.stat().st_size <= 20_000
    assert set(prompts) <= {document.text for document in library.held_out}
