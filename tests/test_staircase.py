"""Imports go one way, down the stairs; the stairs are read off the real imports, hints and lazy ones included."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parent.parent / "flowfn"

# From the top to the bottom. Rooms on one stair do not know each other.
STAIRS = [
    {"cli"},
    {"ui"},
    {"testing", "langgraph"},
    {"flowfn"},
    {"prebuilt"},
    {"func", "graph"},
    {"pregel"},
    {"executors", "messages"},
    {"context", "places"},
    {"checkpoint", "store", "cache"},
    {"identity", "reports", "channels", "stream", "sql", "schema", "waiting"},
    {"serde"},
    {"futures", "retry", "timeouts", "rates", "ids", "owners"},
    {"types"},
    {"faults"},
    {"amounts"},
    {"errors"},
]
HEIGHT = {room: -stair for stair, rooms in enumerate(STAIRS) for room in rooms}
GUESTS = ["numpy", "pandas", "pydantic", "psycopg", "dask", "cloudpickle", "diskcache", "click", "starlette"]


class Import(NamedTuple):
    importer: str
    line: int
    imported: str

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def room(module: str) -> str:
    """The room of a module; the face is its own."""
    return module.split(".")[1] if "." in module else module


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ["flowfn", *path.relative_to(PACKAGE).with_suffix("").parts]
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


NAMES = {name for name, _ in modules()}


def imports() -> Iterator[Import]:
    """Every import of a flowfn module by another, wherever in the file it stands."""
    for name, path in modules():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_bytes())):
            for imported in imported_by(node, package):
                if imported.partition(".")[0] == "flowfn":
                    yield Import(name, node.lineno, imported)


def imported_by(node: ast.AST, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        whole = ".".join([*parents, *([node.module] if node.module else [])])
        return [inner if (inner := f"{whole}.{alias.name}") in NAMES else whole for alias in node.names]
    return []


def test_every_room_has_its_stair():
    assert {room(name) for name in NAMES} <= HEIGHT.keys()


def test_imports_go_down_the_stairs():
    def is_climbing(one: Import) -> bool:
        here, there = room(one.importer), room(one.imported)
        return here != there and HEIGHT[there] >= HEIGHT[here]

    assert [str(one) for one in imports() if is_climbing(one)] == []


@pytest.mark.parametrize(
    ("node", "package", "imported"),
    [
        ("import flowfn.types", "flowfn.func", ["flowfn.types"]),
        ("from flowfn import places, task", "flowfn.func", ["flowfn.places", "flowfn"]),
        ("from flowfn.pregel import snapshot", "flowfn.func", ["flowfn.pregel.snapshot"]),
        ("from . import typed", "flowfn.serde", ["flowfn.serde.typed"]),
        ("from ..types import Send", "flowfn.serde", ["flowfn.types"]),
    ],
)
def test_every_form_of_import_is_seen(node, package, imported):
    assert imported_by(ast.parse(node).body[0], package) == imported


def test_importing_flowfn_imports_no_guest():
    code = "import sys, flowfn; print(*sys.modules)"

    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert {"flowfn", "flowfn.func"} <= set(loaded)
    assert sorted(set(GUESTS) & set(loaded)) == []
