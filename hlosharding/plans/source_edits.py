"""A Python text with insertions and replacements, at places that its syntax tree names.

Floor: plans.  Knows nothing of shardings.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """`head` and `tail` around a part of a text; or, where `head` stands for it, in its place.  In bytes."""

    start: int
    end: int
    head: str
    tail: str = ""
    replaces: bool = False

    def pieces(self) -> Iterator[tuple[tuple[int, int, int], int, str]]:
        """In which order they come, up to where the text is left out, and what is inserted.

        Where parts begin or end together the outer ones begin first, and the inner ones end first.
        """
        yield (self.start, 1, -self.end), self.end if self.replaces else self.start, self.head
        if self.tail:
            yield (self.end, 0, -self.start), self.end, self.tail


def edited(text: str, edits: Iterable[Edit]) -> str:
    """
    >>> edited("f(x + y)", [Edit(0, 8, "g(", ")"), Edit(2, 7, "h(", ")"), Edit(2, 3, "z", replaces=True)])
    'g(f(h(z + y)))'
    """
    data, parts, at = text.encode(), list[bytes](), 0
    for (start, _, _), end, inserted in sorted(piece for edit in edits for piece in edit.pieces()):
        parts += [data[at:start], inserted.encode()]
        at = max(at, end)
    return b"".join([*parts, data[at:]]).decode()


def span_of(text: str, node: ast.expr) -> tuple[int, int]:
    """Where an expression begins and ends, in bytes.

    >>> span_of("a = 1\\nb = a", ast.parse("a = 1\\nb = a").body[1].value)
    (10, 11)
    """
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return line_start(text, node.lineno) + node.col_offset, line_start(text, node.end_lineno) + node.end_col_offset


def line_start(text: str, number: int) -> int:
    """Where a line begins, in bytes; the first is 1."""
    return sum(len(line.encode()) for line in text.splitlines(keepends=True)[: number - 1])


def behind_imports(text: str, tree: ast.Module) -> int:
    """Where a new function may stand: behind the last import at the beginning, or the docstring."""
    last = 0
    for number, statement in enumerate(tree.body):
        is_docstring = not number and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not is_docstring and not isinstance(statement, ast.Import | ast.ImportFrom):
            break
        last = statement.end_lineno or statement.lineno
    return line_start(text, last + 1)


def body_start(text: str, function: ast.FunctionDef) -> tuple[int, str] | None:
    """Where a first statement may stand in a function, and its indentation; None of one on a single line."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body or body[0].lineno == function.lineno:
        return None
    first = body[0]
    return line_start(
        text, min([first.lineno, *(d.lineno for d in getattr(first, "decorator_list", ()))])
    ), " " * first.col_offset
