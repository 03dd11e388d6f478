"""Imports: a folder of a room is entered through its door, and no file needs itself, by whatever way.

Imports inside functions and for type checkers count: they, too, are what a reader has to know first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "hlosharding"


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
FOLDERS = {module for module, path in FILES.items() if path.name == "__init__.py" and module.count(".") >= 2}


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text())


@cache
def imported(module: str) -> frozenset[str]:
    """The files of the package that a file imports anywhere in it; `import x.y` of a folder counts as the folder."""
    found: set[str] = set()
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name in FILES)
        elif isinstance(node, ast.ImportFrom) and node.module in FILES:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found.update(name if name in FILES else node.module for name in names)
    return frozenset(found - {"hlosharding", module})


def test_no_file_needs_itself() -> None:
    graph = nx.DiGraph((module, other) for module in FILES for other in imported(module))
    circles = [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1]
    assert circles == []


def test_a_folder_is_entered_through_its_door() -> None:
    assert [offence for module in FILES for offence in _doors_passed_by(module)] == []


def _doors_passed_by(module: str) -> Iterator[str]:
    for node in ast.walk(tree_of(module)):
        if isinstance(node, ast.ImportFrom) and node.module in FILES and node.module not in FOLDERS:
            folder = node.module.rpartition(".")[0]
            is_own = module == folder or module.startswith(f"{folder}.")
            if folder in FOLDERS and not is_own:
                yield f"{module}:{node.lineno} reaches into {node.module}"
