"""Where in the user's Python a value is made: the line, and the expression whose value it is.

Floor: plans.  Source files are read for functions that were traced in this process only: a dump may name any file.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from hlosharding.ir import CONTROL_FLOW, PACKS, Instruction, Module
from hlosharding.notebook import file_name

_OPERATORS: dict[str, type[ast.operator]] = {
    "add": ast.Add,
    "sub": ast.Sub,
    "mul": ast.Mult,
    "div": ast.Div,
    "rem": ast.Mod,
    "pow": ast.Pow,
    "integer_pow": ast.Pow,
    "dot_general": ast.MatMult,
}
"""Operators of Python by JAX's primitives; what stands for all others is a call."""
_HOLD = PACKS | CONTROL_FLOW | {"parameter", "constant", "custom-call"}


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """Where an expression begins, and the last JAX op of it: all calls of one function have the same places."""

    file: str
    line: int
    column: int
    operator: str
    """"add" and the like; "" for a call, be it of a function that does nothing else (`jnp.einsum`, `jnp.add`)."""

    def __str__(self) -> str:
        return f"{file_name(self.file)}:{self.line}"


TextOf = Callable[[str], str]
"""The text of a source file; "" of one that may not be read."""


def places(module: Module, text_of: TextOf | None = None) -> dict[SourcePlace, list[Instruction]]:
    """The values of a traced program that are values of expressions, in program order.

    Gradients have no expression of their own, nor have values under `jax.vmap`, whose expressions have fewer dims.
    `text_of`: by default of functions that were traced in this process.
    """
    found: dict[SourcePlace, list[Instruction]] = {}
    text_of = text_of or (traced_text if module.signature is not None else None)
    at = {inst: place for inst in module.instructions if (place := _place_of(inst)) is not None}
    if text_of is not None:
        of_calls = {place: replace(place, operator="") for place in set(at.values()) if not expression(place, text_of)}
        at = {inst: of_calls.get(place, place) for inst, place in at.items()}
    for inst, place in at.items():
        # What another op of the same expression reads is not its value yet.
        if not any(at.get(user) == place for user in inst.users):
            found.setdefault(place, []).append(inst)
    return found


def _place_of(inst: Instruction) -> SourcePlace | None:
    has_expression = inst.opcode not in _HOLD and not inst.is_backward and "vmap(" not in inst.op_name
    if not has_expression or not inst.shape.is_array or not inst.shape.rank or not inst.frames.of_user:
        return None
    frame = inst.frames.of_user[0]
    primitive = inst.op_name.rpartition("/")[2]
    return SourcePlace(frame.file, frame.line, frame.column, primitive if primitive in _OPERATORS else "")


def traced_text(file: str) -> str:
    """Of a file, or a notebook's cell, that this process ran."""
    return "".join(linecache.getlines(file))


def expression(place: SourcePlace, text_of: TextOf = traced_text) -> str:
    """The source of the expression; "" where it cannot be read.

    >>> expression(SourcePlace("no-such-file.py", 1, 0, ""))
    ''
    """
    found = node_at(place, text_of(place.file))
    return ast.unparse(found) if found is not None else ""


def node_at(place: SourcePlace, text: str) -> ast.expr | None:
    """The expression in the text of its file."""
    nodes = (node for node in _expressions(place, text) if _is_of(node, place.operator))
    return max(nodes, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0), default=None)


def _is_of(node: ast.expr, operator: str) -> bool:
    if operator and isinstance(node, ast.BinOp):
        return isinstance(node.op, _OPERATORS[operator])
    return isinstance(node, ast.Call) and not operator


def _expressions(place: SourcePlace, text: str) -> Iterator[ast.expr]:
    for node in ast.walk(parsed(place.file, text)):
        if isinstance(node, ast.expr) and (node.lineno, node.col_offset) == (place.line, place.column):
            yield node


@lru_cache(maxsize=32)
def parsed(file: str, text: str) -> ast.Module:
    """Its syntax tree; an empty one of what is no Python."""
    try:
        return ast.parse(text, file)
    # The last two are for text that is nested too deep for the parser.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])
