"""The plan of the house: rooms import downwards, through each other's door, and stay small enough to read."""

from __future__ import annotations

import ast
import configparser
from collections.abc import Iterator
from functools import cache
from pathlib import Path

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


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def own_room(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


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


def room_named(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "hlosharding" and len(parts) > 1 else None


@cache
def imports(path: Path) -> tuple[tuple[str, int], ...]:
    """(module, line) of every import statement in a file, also inside functions."""
    return tuple(_imports(tree_of(path)))


def _imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno


def between_rooms() -> Iterator[tuple[Path, int, str, str]]:
    """(file, line, module, its room) of every import of another room."""
    for path in SOURCES:
        for module, line in imports(path):
            room = room_named(module)
            if room is not None and room != own_room(path):
                yield path, line, module, room


def test_a_room_is_entered_through_its_door() -> None:
    reached = between_rooms()
    assert not [f"{name_of(p)}:{line} reaches into {m}" for p, line, m, room in reached if m != f"hlosharding.{room}"]


def test_rooms_import_downwards() -> None:
    order = {room: height for height, rooms in enumerate(reversed(floors())) for room in rooms}
    homeless = {own_room(path) for path in SOURCES} - order.keys() - {"__init__"}
    assert not homeless, "these stand on no floor of setup.cfg"
    upwards = [
        f"{name_of(path)}:{line} imports {module} from above or beside"
        for path, line, module, room in between_rooms()
        if own_room(path) != "__init__" and order[room] > order[own_room(path)]
    ]
    assert not upwards


def test_only_the_bridge_touches_private_jax() -> None:
    others = [path for path in SOURCES if path.parent != XLA_BRIDGE]
    private = [(p, line, m) for p in others for m, line in imports(p) if m.startswith(PRIVATE_JAX)]
    assert not [f"{name_of(path)}:{line} imports {module}: use xla_bridge" for path, line, module in private]


def test_files_stay_readable() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in ALL_FILES}
    assert not [f"{name_of(p)} has {n} lines; split it by duty" for p, n in lines.items() if n > LARGEST_FILE]


def test_files_are_named_after_their_duty() -> None:
    assert not [name_of(path) for path in ALL_FILES if path.stem in {"utils", "util", "helpers", "misc"}]


def test_modules_say_what_they_are() -> None:
    assert not [name_of(path) for path in SOURCES if not ast.get_docstring(tree_of(path))]


def test_public_names_say_what_they_are() -> None:
    public = [
        (path, node)
        for path in SOURCES
        for node in tree_of(path).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    ]
    assert not [f"{name_of(path)}: {node.name}" for path, node in public if not ast.get_docstring(node)]
