"""The architecture, read from the imports: which floor sees which, and where torch may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

GROUND = {"errors", "shapes", "records", "config"}
MEMORY = {"errors", "records", "config"}
CACHES = GROUND | {"allocators"}
ENGINE = CACHES | {"caches", "workloads", "metrics"}
MODEL = ENGINE | {"engine"}
BUILD = MODEL | {"model"}
DRIVE = BUILD | {"build", "report", "recording"}
STUDY = DRIVE | {"sweeps"}
COMMAND = STUDY | {
    "live",
    "bench",
    "scenario",
    "planning",
    "replay",
    "soak",
    "studies",
    "html",
    "cli_sweeps",
    "cli_write",
}

# What each floor sees besides itself; None sees everything.
SEES: dict[str, set[str] | None] = {
    "": set(),
    "errors": set(),
    "records": set(),
    "shapes": {"errors"},
    "config": {"errors"},
    "allocators": MEMORY,
    "metrics": MEMORY,
    "workloads": MEMORY,
    "capacity": {"errors"},
    "caches": CACHES,
    "engine": ENGINE,
    "scenario": ENGINE | {"engine"},
    "model": MODEL,
    "report": MODEL,
    "recording": MODEL | {"report"},
    "build": BUILD,
    "live": DRIVE,
    "planning": DRIVE | {"capacity"},
    "replay": DRIVE | {"capacity", "cli_write"},
    "sweeps": DRIVE,
    "studies": STUDY,
    "cli_write": {"errors"},
    "cli_sweeps": COMMAND,
    "cli": COMMAND,
    "__main__": COMMAND | {"cli"},
    "views": {"records", "metrics", "config", "shapes", "capacity"},
    "html": DRIVE | {"live", "views", "ui"},  # of ui what makes figures of a publication
    "lesson": ENGINE | {"views"},
    "ui": None,
    "app": None,
    "pages": None,
    "bench": None,  # it measures all of it
    "soak": DRIVE | {"live", "ui", "cli_write"},  # of ui what makes frames
}
# Packages with a place of their own: prefixes of the modules that may import them.
PLACES: dict[str, tuple[str, ...]] = {
    "torch": (
        "kvviz.model",
        "kvviz.caches.store",
        "kvviz.caches.virtual_store",
        "kvviz.bench",
        "kvviz.lesson.pool",
    ),
    "numba": ("kvviz.caches.moves", "kvviz.model.kernels", "kvviz.replay.kernels"),
    "cuda": (),
    "plotly": ("kvviz.views",),
    "pyarrow": (),
    "streamlit": ("kvviz.ui", "app", "pages"),
    "joblib": ("kvviz.sweeps",),
    "distributed": (),
    "ray": (),
}
# And those that may import them inside a function only (the page serves plotly.js itself).
LAZY_PLACES: dict[str, tuple[str, ...]] = {
    "torch": ("kvviz.build", "kvviz.soak.weights"),
    "cuda": ("kvviz.caches.cuda_vmm",),
    "plotly": ("kvviz.ui", "kvviz.html"),
    "pyarrow": ("kvviz.recording.tables", "kvviz.ui.files"),
    "distributed": ("kvviz.sweeps",),
    "ray": ("kvviz.sweeps",),
}
# These floors need nothing but numpy (and torch and numba in the places above).
NUMPY_ONLY = GROUND | {
    "allocators",
    "metrics",
    "workloads",
    "capacity",
    "caches",
    "engine",
    "scenario",
}
# Importing one of these must not load torch, not even through another module.
LIGHT = NUMPY_ONLY | {
    "report",
    "recording",
    "build",
    "live",
    "planning",
    "views",
    "sweeps",
    "studies",
    "html",
}


class Import(NamedTuple):
    """`lazy`: inside a function. `typing`: under `if TYPE_CHECKING`."""

    target: str
    line: int
    lazy: bool
    typing: bool


class Module(NamedTuple):
    source: str
    package: bool = False


Modules = Mapping[str, Module]


def imports_of(name: str, module: Module, known: Modules) -> Iterator[Import]:
    """Every import, with relative names resolved and `from a import b` as a.b if that is one."""

    def walk(node: ast.AST, lazy: bool, typing: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(a.name, child.lineno, lazy, typing) for a in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = _base(name, module.package, child)
                for alias in child.names:
                    inner = f"{base}.{alias.name}"
                    yield Import(inner if inner in known else base, child.lineno, lazy, typing)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                yield from walk(ast.Module(child.body, []), lazy, True)
                yield from walk(ast.Module(child.orelse, []), lazy, typing)
            else:
                function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from walk(child, lazy or function, typing)

    yield from walk(ast.parse(module.source), False, False)


def _base(name: str, package: bool, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = name.split(".")
    parts = parts[: len(parts) - node.level + package]
    return ".".join([*parts, *([node.module] if node.module else [])])


def floor_of(name: str) -> str:
    """`kvviz.caches.store` -> caches; the bare package is the floor ''."""
    parts = name.split(".")
    return (parts[1] if len(parts) > 1 else "") if parts[0] == "kvviz" else parts[0]


def within(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


def faults(known: Modules) -> list[str]:
    """Every import that breaks the architecture, as `module:line: what`."""
    found = []
    for name, module in known.items():
        if floor_of(name) not in SEES:
            found.append(f"{name}:1: stands on no floor; give it one in tests/test_floors.py")
            continue
        for item in imports_of(name, module, known):
            found += [f"{name}:{item.line}: {what}" for what in _wrong(name, item)]
    return found


def _wrong(name: str, item: Import) -> Iterator[str]:
    mine, root = floor_of(name), item.target.split(".")[0]
    if root == "kvviz":
        theirs, sees = floor_of(item.target), SEES[mine]
        if sees is not None and theirs not in sees | {mine, ""}:
            yield f"{mine or 'kvviz'} must not see {theirs} ({item.target})"
    elif root in PLACES:
        lazily = item.lazy and within(name, LAZY_PLACES.get(root, ()))
        if not within(name, PLACES[root]) and not lazily:
            yield f"{root} does not belong here"
    elif mine in NUMPY_ONLY and root not in sys.stdlib_module_names | {"numpy"}:
        yield f"{mine} needs numpy only, not {root}"


def graph(known: Modules, *, lazy: bool) -> dict[str, list[str]]:
    """Imports among the known modules and of the packages in PLACES; never those for typing."""
    return {
        name: [
            i.target if i.target in known else i.target.split(".")[0]
            for i in imports_of(name, module, known)
            if not i.typing and (lazy or not i.lazy)
        ]
        for name, module in known.items()
    }


def cycle(edges: Mapping[str, list[str]]) -> list[str]:
    """A cycle as the path through it, or an empty list."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for target in edges.get(name, []):
            if found := visit(target, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in edges if (found := visit(name, []))), [])


def loads(edges: Mapping[str, list[str]], name: str) -> set[str]:
    """Everything that importing a module imports in turn, its parent packages included."""
    seen: set[str] = set()
    todo = [name]
    while todo:
        at = todo.pop()
        if at not in seen:
            seen.add(at)
            todo += edges.get(at, [])
            todo += [at.rpartition(".")[0]] if "." in at else []
    return seen


@pytest.fixture(scope="module")
def modules(root: Path) -> dict[str, Module]:
    """All modules of the package and the pages, by dotted name."""
    found = {}
    for path in [*root.glob("kvviz/**/*.py"), *root.glob("app.py"), *root.glob("pages/**/*.py")]:
        parts = path.relative_to(root).with_suffix("").parts
        package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if package else parts)
        found[name] = Module(path.read_text(encoding="utf-8"), package)
    return found


def test_floors_hold(modules: dict[str, Module]) -> None:
    """A module reaches up, sideways, or for a package that has its place elsewhere."""
    assert faults(modules) == []


def test_no_cycle(modules: dict[str, Module]) -> None:
    """Two modules need each other, so neither can be read or tested alone."""
    assert cycle(graph(modules, lazy=True)) == []


def test_light_floors_never_load_torch(modules: dict[str, Module]) -> None:
    """A dry run would pay for torch, through whichever module it came in."""
    edges = graph(modules, lazy=False)
    heavy = [
        name
        for name in modules
        if floor_of(name) in LIGHT
        and not within(name, PLACES["torch"] + PLACES["numba"])
        and loads(edges, name) & {"torch", "numba", "streamlit"}
    ]
    assert heavy == []


@pytest.mark.parametrize(
    ("prefix", "banned"),
    [
        ("kvviz.build", ("torch", "streamlit", "plotly", "numba")),
        ("kvviz.live", ("torch", "streamlit", "plotly")),
        ("kvviz.views", ("torch", "streamlit")),
        ("kvviz.studies", ("torch", "streamlit", "plotly", "distributed")),
    ],
)
def test_import_is_light(
    root: Path, modules: dict[str, Module], prefix: str, banned: tuple[str, ...]
) -> None:
    """The parsed imports say it is light, and a fresh interpreter says it is not."""
    names = [name for name in modules if within(name, (prefix,))]
    code = (
        f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\n"
        f"print([b for b in {banned} if b in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=False
    )
    assert (ran.stdout.strip(), ran.stderr) == ("[]", "")


def planted(name: str, source: str) -> list[str]:
    """Faults of a package in which this one module has this source."""
    known = {
        n: Module("")
        for n in (
            "kvviz.records",
            "kvviz.engine.engine",
            "kvviz.metrics",
            "kvviz.workloads.presets",
            "kvviz.caches.store",
        )
    }
    return faults({**known, name: Module(source)})


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        (
            "kvviz.caches.paged",
            "from kvviz.engine import engine",
            "caches must not see engine (kvviz.engine.engine)",
        ),
        (
            "kvviz.caches.paged",
            "from ..engine.engine import Engine",
            "caches must not see engine (kvviz.engine.engine)",
        ),
        (
            "kvviz.allocators.fits",
            "import kvviz.metrics",
            "allocators must not see metrics (kvviz.metrics)",
        ),
        (
            "kvviz.records",
            "from kvviz import metrics",
            "records must not see metrics (kvviz.metrics)",
        ),
        ("kvviz.records", "import pandas", "records needs numpy only, not pandas"),
        (
            "kvviz.views.chart",
            "from kvviz.workloads.presets import PRESETS",
            "views must not see workloads (kvviz.workloads.presets)",
        ),
        (
            "kvviz.views.chart",
            "def f():\n    import kvviz.engine.engine",
            "views must not see engine (kvviz.engine.engine)",
        ),
        ("kvviz.views.chart", "import streamlit as st", "streamlit does not belong here"),
        ("kvviz.engine.engine", "import torch.nn", "torch does not belong here"),
        ("kvviz.engine.engine", "def f():\n    import torch", "torch does not belong here"),
        (
            "kvviz.build",
            "try:\n    import torch\nexcept ImportError:\n    pass",
            "torch does not belong here",
        ),
        ("kvviz.build", "class A:\n    from torch import nn", "torch does not belong here"),
        (
            "kvviz.build",
            "if TYPE_CHECKING:\n    pass\nelse:\n    import torch",
            "torch does not belong here",
        ),
        ("kvviz.model.forward", "from numba import njit", "numba does not belong here"),
        ("app", "import plotly.express", "plotly does not belong here"),
        ("kvviz.modelling", "", "stands on no floor; give it one in tests/test_floors.py"),
    ],
)
def test_planted_fault_is_found(name: str, source: str, expected: str) -> None:
    """The checker is blind to this fault, so the tests above prove nothing."""
    assert [f.partition(": ")[2] for f in planted(name, source)] == [expected]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("kvviz.build", "def f():\n    import torch"),
        (
            "kvviz.build",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
            "    from kvviz.model.serving import ServingModel",
        ),
        ("kvviz.caches.store", "import torch\nfrom kvviz.shapes import ModelShape"),
        ("kvviz.bench.speed", "import torch\nfrom kvviz import build"),
        ("kvviz.ui.widgets", "import streamlit\nfrom kvviz.views import chart\nimport kvviz.live"),
        ("kvviz.views.chart", "import plotly\nfrom kvviz.views import theme\nimport kvviz.metrics"),
        ("pages.bench", "import streamlit\nfrom kvviz.model import forward"),
    ],
)
def test_allowed_import_is_let_through(name: str, source: str) -> None:
    """The checker cries wolf, and would be switched off."""
    assert planted(name, source) == []


def test_planted_cycle_is_found() -> None:
    """A cycle of three, one leg of it inside a function, goes unseen."""
    known = {
        "kvviz.a": Module("import kvviz.b"),
        "kvviz.b": Module("from kvviz import c"),
        "kvviz.c": Module("def f():\n    from kvviz import a"),
    }
    assert cycle(graph(known, lazy=True)) == ["kvviz.a", "kvviz.b", "kvviz.c", "kvviz.a"]
    assert cycle(graph(known, lazy=False)) == []


def test_planted_heavy_import_is_found() -> None:
    """torch that comes in through a parent package goes unseen."""
    known = {
        "kvviz": Module("", True),
        "kvviz.caches": Module("from .store import x", True),
        "kvviz.caches.store": Module("import torch.nn"),
        "kvviz.caches.paged": Module(""),
    }
    assert "torch" in loads(graph(known, lazy=False), "kvviz.caches.paged")
