"""Mutants: the package with one operator or constant changed, drawn by a seed from the rooms that decide and price.

A mutant is wrong in one place; what matters is whether a test notices.  Some change nothing that can be observed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

ROOMS = ("rules", "propagation", "sharding", "spmd", "reshard", "partitioner", "cost", "schedule", "ir", "partitioner")
"""Where rules, strategies, prices and formulas stand; each gets as many mutants, the largest one twice as many."""
_SWAPS: dict[type[ast.AST], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in",
    ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is", ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*",
    ast.FloorDiv: "*", ast.And: "or", ast.Or: "and",
}  # fmt: skip
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_SKIPPED = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)
"""What a message says is no decision."""
_CHECKS = ("strict", "frozen", "slots", "kw_only", "eq", "repr", "compare")
"""Keywords that make Python look closer, or not; they compute nothing."""


class Mutant(NamedTuple):
    """One change of one file."""

    file: str
    line: int
    source: str
    """The file's new text."""
    change: str
    """The line's text, before and after."""


def drawn(root: Path, count: int, seed: int) -> list[Mutant]:
    """So many mutants, the rooms in turn."""
    random = Random(seed)
    files = {room: sorted((root / "hlosharding" / room).rglob("*.py")) for room in ROOMS}
    return [_drawn_in(root, files[ROOMS[n % len(ROOMS)]], random) for n in range(count)]


def _drawn_in(root: Path, files: Sequence[Path], random: Random) -> Mutant:
    """A file by its size, then a place in it."""
    path = random.choices(files, [len(_places_in(file)) for file in files])[0]
    (line, start, end), text = random.choice(_places_in(path))
    lines = path.read_text().splitlines(keepends=True)
    raw = lines[line - 1].encode()  # offsets of the syntax tree count bytes
    new = (raw[:start] + text.encode() + raw[end:]).decode()
    source = "".join([*lines[: line - 1], new, *lines[line:]])
    return Mutant(str(path.relative_to(root)), line, source, f"{lines[line - 1].strip()}  ->  {new.strip()}")


Place = tuple[tuple[int, int, int], str]
"""(line, first byte, byte behind the last), the text that goes there."""


@cache
def _places_in(path: Path) -> list[Place]:
    """Where no parenthesis would be lost: the syntax tree does not know of those around an operand."""
    source = path.read_text()
    lines = source.encode().splitlines()
    found = _places(ast.parse(source))
    return [place for place in found if not set(b"()") & set(lines[place[0][0] - 1][place[0][1] : place[0][2]])]


def _places(node: ast.AST) -> Iterator[Place]:
    if isinstance(node, _SKIPPED) or (isinstance(node, ast.keyword) and node.arg in _CHECKS):
        return
    if isinstance(node, ast.FunctionDef | ast.AnnAssign):  # of these, not what stands for type checkers
        children: list[ast.AST] = [*node.body] if isinstance(node, ast.FunctionDef) else [node.value or ast.Pass()]
    else:
        yield from _changes(node)
        children = list(ast.iter_child_nodes(node))
    for child in children:
        yield from _places(child)


def _changes(node: ast.AST) -> Iterator[Place]:
    match node:
        case ast.Compare(left, [op], [right]) if type(op) in _SWAPS:
            yield from _between(left, right, _SWAPS[type(op)])
        case ast.BinOp(left, op, right) if type(op) in _SWAPS:
            yield from _between(left, right, _SWAPS[type(op)])
        case ast.BoolOp(op, [left, right]):
            yield from _between(left, right, _SWAPS[type(op)])
        case ast.UnaryOp(ast.Not(), operand) if node.lineno == operand.lineno:
            yield (node.lineno, node.col_offset, operand.col_offset), ""
        case ast.Call(ast.Name(name) as called) if name in _CALLS:
            yield (called.lineno, called.col_offset, called.end_col_offset or 0), _CALLS[name]
        case ast.Constant(bool(value)):
            yield (node.lineno, node.col_offset, node.end_col_offset or 0), str(not value)
        case ast.Constant(int(value) | float(value)):
            yield (node.lineno, node.col_offset, node.end_col_offset or 0), repr(2 * value or 1)
        case _:
            return


def _between(left: ast.expr, right: ast.expr, text: str) -> Iterator[Place]:
    """The operator and the space around it."""
    if left.end_lineno == right.lineno:
        yield (right.lineno, left.end_col_offset or 0, right.col_offset), f" {text} "
