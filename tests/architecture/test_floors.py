"""The plan of the house: rooms import downwards, through each other's door, and stay small enough to read."""

from __future__ import annotations

import ast
import configparser
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "hlosharding"
SOURCES = sorted(PACKAGE.rglob("*.py"))
ALL_FILES = sorted(
    path for folder in ("hlosharding", "tests", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.py")
)
LARGEST_FILE = 600
PRIVATE_JAX = ("jaxlib", "jax._src")
XLA_BRIDGE = PACKAGE / "xla_bridge"


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def floors() -> list[set[str]]:
    """The contract's rooms, highest floor first."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["importlinter:contract:floors"]["layers"].split("\n")
    return [
        {part.strip().strip("()").removeprefix("hlosharding.") for part in line.replace(":", "|").split("|")}
        for line in lines
        if line.strip()
    ]


def room_of(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "hlosharding" and len(parts) > 1 else None


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(module, line) of every import statement in a file, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_room_is_entered_through_its_door(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for module, line in imports(ast.parse(path.read_text())):
        room = room_of(module)
        if room is not None and room != own:
            assert module == f"hlosharding.{room}", f"{name_of(path)}:{line} reaches into {module}"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_rooms_import_downwards(path: Path) -> None:
    order = {room: height for height, rooms in enumerate(reversed(floors())) for room in rooms}
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    assert own in order, f"{own} stands on no floor of setup.cfg"
    for module, line in imports(ast.parse(path.read_text())):
        room = room_of(module)
        if room is not None and room != own:
            assert order[room] <= order[own], f"{name_of(path)}:{line} imports {module} from above or beside"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_only_the_bridge_touches_private_jax(path: Path) -> None:
    if path.parent == XLA_BRIDGE:
        return
    for module, line in imports(ast.parse(path.read_text())):
        assert not module.startswith(PRIVATE_JAX), f"{name_of(path)}:{line} imports {module}: use xla_bridge"


@pytest.mark.parametrize("path", ALL_FILES, ids=name_of)
def test_files_stay_readable(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= LARGEST_FILE, f"{name_of(path)} has {lines} lines; split it by duty"
    assert path.stem not in {"utils", "util", "helpers", "misc"}, f"{name_of(path)}: name it after its duty"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_modules_and_public_names_say_what_they_are(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert ast.get_docstring(tree), f"{name_of(path)} has no docstring"
    public = [
        node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    bare = [node.name for node in public if not ast.get_docstring(node)]
    assert not bare, f"{name_of(path)}: no docstring on {', '.join(bare)}"
