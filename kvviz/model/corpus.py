"""The training text: the Python standard library, one document a function, class or method.

The library is read from the running interpreter, so nothing is fetched. Tokens are bytes, 0 to 255,
and EOT, which ends every document. Whole modules are held out: no part of one is in training.
"""

from __future__ import annotations

import ast
import hashlib
import platform
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvviz.shapes import END_OF_TEXT

EOT = END_OF_TEXT
MAX_CLASS_BYTES = 4096
HELD_OUT_PERCENT = 5
PROMPT_BYTES = 200_000
# No source file holds a zero byte, so it separates prompts without any escaping.
PROMPT_SEPARATOR = b"\0"

_SKIPPED = frozenset(
    {
        "test",
        "tests",
        "idle_test",
        "site-packages",
        "dist-packages",
        "__pycache__",
        "turtledemo",
        "encodings",
        "pydoc_data",
    }
)


@dataclass(frozen=True)
class Document:
    """One definition: the module it is from (relative POSIX path) and its UTF-8 bytes."""

    module: str
    text: bytes


@dataclass(frozen=True)
class Corpus:
    """Documents in a fixed order, split by module; `python` is the version they are from."""

    train: tuple[Document, ...]
    held_out: tuple[Document, ...]
    python: str


def standard_library() -> Path:
    """The folder of the running interpreter's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def module_paths(root: Path) -> list[str]:
    """Modules under `root` as relative POSIX paths, sorted; tests and tables are left out."""
    found = (path.relative_to(root) for path in root.rglob("*.py"))
    return sorted(path.as_posix() for path in found if not _SKIPPED.intersection(path.parts))


def is_held_out(module: str) -> bool:
    """Whether a module is held out: decided by a hash of its path, the same everywhere."""
    digest = hashlib.sha256(module.encode("utf-8")).digest()
    return int.from_bytes(digest[:4], "big") % 100 < HELD_OUT_PERCENT


def _lines_of(node: ast.stmt, lines: list[str]) -> bytes:
    """Source of one definition, decorators included, as UTF-8 bytes."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(item.lineno for item in decorators)])
    return "".join(lines[first - 1 : node.end_lineno]).encode("utf-8")


def definitions(source: str) -> Iterator[bytes]:
    """Top-level functions and classes, in order; long classes give their methods instead.

    Raises SyntaxError when `source` is not valid Python.
    """
    # Like the parser, count only "\n" as a line end: str.splitlines also breaks at form feeds.
    lines = [line + "\n" for line in source.split("\n")]
    with warnings.catch_warnings():
        # Old modules hold escapes that newer parsers warn about; their text is still good.
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _lines_of(node, lines)
        elif isinstance(node, ast.ClassDef):
            text = _lines_of(node, lines)
            if len(text) <= MAX_CLASS_BYTES:
                yield text
            else:
                methods = (ast.FunctionDef, ast.AsyncFunctionDef)
                yield from (_lines_of(m, lines) for m in node.body if isinstance(m, methods))


def module_documents(root: Path, module: str) -> list[Document]:
    """Documents of one module; none when it is not UTF-8 or does not parse."""
    try:
        source = (root / module).read_text(encoding="utf-8")
        return [Document(module, text) for text in definitions(source)]
    except (UnicodeDecodeError, SyntaxError, ValueError):
        return []


def load(root: Path | None = None) -> Corpus:
    """Read every document under `root` (default: the standard library), sorted by module."""
    folder = standard_library() if root is None else root
    train: list[Document] = []
    held_out: list[Document] = []
    for module in module_paths(folder):
        side = held_out if is_held_out(module) else train
        side.extend(module_documents(folder, module))
    return Corpus(tuple(train), tuple(held_out), platform.python_version())


def encode(text: bytes) -> np.ndarray:
    """Token ids of one document, int16 [len(text) + 1]: its bytes, then EOT."""
    return np.append(np.frombuffer(text, dtype=np.uint8).astype(np.int16), np.int16(EOT))


def decode(tokens: Iterable[int]) -> str:
    """Text of some token ids; EOT is left out, broken UTF-8 becomes U+FFFD."""
    return bytes(token for token in tokens if token < EOT).decode("utf-8", errors="replace")


def pack(documents: Iterable[Document]) -> np.ndarray:
    """One stream of tokens, int16 [sum(len + 1)], every document ended by EOT."""
    encoded = [encode(document.text) for document in documents]
    return np.concatenate(encoded) if encoded else np.empty(0, dtype=np.int16)


def write_prompts(
    documents: Iterable[Document], path: Path, limit_bytes: int = PROMPT_BYTES
) -> int:
    """Write up to `limit_bytes` of documents, each ended by PROMPT_SEPARATOR; gives their number.

    Documents are taken in the order of their hashes, so that every module has its share.
    """
    chosen: list[bytes] = []
    size = 0
    for text in sorted((d.text for d in documents), key=lambda t: hashlib.sha256(t).digest()):
        if size + len(text) + 1 <= limit_bytes:
            chosen.append(text)
            size += len(text) + 1
    path.write_bytes(b"".join(text + PROMPT_SEPARATOR for text in chosen))
    return len(chosen)


def read_prompts(path: Path) -> list[bytes]:
    """The documents of a file that `write_prompts` wrote, without their separators."""
    return [text for text in path.read_bytes().split(PROMPT_SEPARATOR) if text]
