"""What the lines of a computation are, and which values each one uses.

Floor: executor.  Tuples, parameters and inline constants make no lines: they are names for other values.  A value is a
`Var`: one leaf of what a line (or a parameter) makes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

from hlosharding.executor.text import is_plain_nan, literal_text, scalar_text
from hlosharding.ir import PACKS, Computation, Instruction, Shape, memory_of
from hlosharding.ir import custom_call_targets as targets

PASS_THROUGH = frozenset({"copy", "domain", "add-dependency"})
"""Ops that only hand on their first operand."""
NO_LINES = PASS_THROUGH | PACKS | {"parameter"}
"""Ops that are names for other values."""
# What is left of them in a partitioned program is their operand.
_ANNOTATIONS = targets.ANNOTATIONS | targets.PLACEMENTS


@dataclass(frozen=True, slots=True)
class Var:
    """One array that an instruction makes: the leaf at `path` of its (tuple) result."""

    inst: Instruction
    path: tuple[int, ...] = ()

    @property
    def shape(self) -> Shape:
        """The array's shape."""
        shape = self.inst.shape
        for index in self.path:
            shape = shape.tuple_shapes[index]
        return shape


@dataclass(frozen=True, slots=True)
class Formal:
    """Parameter `index` of a function that stands for several repeated stretches; `var` is the first one's value."""

    index: int
    var: Var


@dataclass(frozen=True, slots=True)
class Inline:
    """A constant that is written where it is used: a scalar, or an array of equal elements."""

    text: str
    """The expression of the whole array."""
    literal: str
    """The element as Python writes it; "" where no literal is exactly that element."""
    dims: tuple[int, ...] = ()
    is_atom: bool = True
    """False for a text with operators."""


OF_NUMBERS = frozenset({"partition-id", "convert", "reshape", "constant", "dynamic-slice", "multiply"})
"""What numbers of devices are computed with."""
Leaf: TypeAlias = "Var | Formal | Inline"
Tree: TypeAlias = "Leaf | tuple[Tree, ...]"


def leaves(tree: Tree) -> Iterator[Leaf]:
    """All leaves of a tree, in order."""
    if isinstance(tree, tuple):
        for part in tree:
            yield from leaves(part)
    else:
        yield tree


def with_leaves(tree: Tree, new: Iterator[Leaf]) -> Tree:
    """The tree with other leaves, in order."""
    return tuple(with_leaves(part, new) for part in tree) if isinstance(tree, tuple) else next(new)


def tree_of(inst: Instruction, shape: Shape | None = None, path: tuple[int, ...] = ()) -> Tree:
    """The values that `inst` makes, nested as its shape is."""
    shape = inst.shape if shape is None else shape
    if not shape.is_tuple:
        return Var(inst, path)
    return tuple(tree_of(inst, part, (*path, i)) for i, part in enumerate(shape.tuple_shapes))


@dataclass(frozen=True)
class CodeLine:
    """An instruction that is computed, with its operands resolved to values."""

    inst: Instruction
    operands: tuple[Tree, ...]

    @cached_property
    def uses(self) -> tuple[Leaf, ...]:
        """All operand leaves, in order, doubles and inline constants included."""
        return tuple(leaf for operand in self.operands for leaf in leaves(operand))

    @cached_property
    def constants(self) -> tuple[tuple[int, Inline], ...]:
        """The inline constants among them, with their places."""
        return tuple((n, leaf) for n, leaf in enumerate(self.uses) if isinstance(leaf, Inline))

    @cached_property
    def defines(self) -> tuple[Var, ...]:
        """All values it makes, in order."""
        return tuple(leaf for leaf in leaves(tree_of(self.inst)) if isinstance(leaf, Var))


@dataclass(frozen=True, slots=True)
class Flow:
    """A computation as lines: `parameters` and `result` are trees of values."""

    parameters: tuple[Tree, ...]
    lines: tuple[CodeLine, ...]
    result: Tree


def inline_constant(inst: Instruction) -> Inline | None:
    """A constant that is written where it is used (a scalar, or an array of equal elements), else None."""
    if inst.opcode == "broadcast" and not inst.dimensions:
        element = inline_constant(inst.operands[0])
        return element and Inline(f"lax.broadcast({element.text}, {inst.shape.dims})", element.literal, inst.shape.dims)
    if inst.opcode != "constant" or inst.shape.dims or not inst.shape.is_array or not is_plain_nan(inst.literal):
        return None
    return Inline(scalar_text(inst.literal), literal_text(inst.literal))


def flow_of(
    computation: Computation,
    *,
    inline: bool = True,
    numbers: Callable[[Instruction], Inline | None] = lambda _: None,
    on_host: Mapping[Instruction, Container[int]] = MappingProxyType({}),
) -> Flow:
    """Resolve a computation.  Without `inline` every constant is a line, and moves to another memory are none.

    `numbers`: what else is written where it is used (of ops in their order).  `on_host`: per instruction the leaves
    that lie in the host's memory.

    >>> from hlosharding.ir import Builder, Shape
    >>> main = Builder("m").computation("main")
    >>> x = main.parameter(0, Shape.array("f32", (4,)))
    >>> y = main.add("negate", x.shape, (x,))
    >>> pair = main.root(main.add("tuple", Shape.tuple((x.shape, x.shape)), (x, y)))
    >>> flow = flow_of(main.computation)
    >>> [line.inst.name for line in flow.lines], [leaf.inst.name for leaf in flow.result]
    (['negate'], ['param_0', 'negate'])
    """
    trees: dict[Instruction, Tree] = {}
    lines: list[CodeLine] = []
    for inst in _in_order(computation):
        tree, number = _without_line(inst, trees, inline), numbers(inst)
        if number is not None:
            tree = number
        if tree is None:
            lines.append(CodeLine(inst, tuple(trees[o] for o in inst.operands)))
            tree = tree_of(inst)
        elif inst.opcode == "tuple":
            tree = _with_rooms(inst, tree, on_host)
        trees[inst] = tree
    parameters = tuple(trees[p] for p in computation.parameters)
    return Flow(parameters, tuple(_needed(lines, trees[computation.root])), trees[computation.root])


def _with_rooms(inst: Instruction, tree: Tree, on_host: Mapping[Instruction, Container[int]]) -> Tree:
    """A tuple in which what a loop fills on the host starts there."""
    filled = [on_host[user] for user in inst.users if user.opcode == "while" and user in on_host]
    if not filled or not isinstance(tree, tuple):
        return tree
    there = [any(first in places for places in filled) for first in inst.shape.first_leaves]
    pairs = zip(tree, there, strict=False)
    return tuple(_room(leaf) if is_there and isinstance(leaf, Inline) else leaf for leaf, is_there in pairs)


def _room(constant: Inline) -> Inline:
    return replace(constant, text=f"jax.device_put({constant.text}, jax.memory.Space.Host)", literal="")


def _needed(lines: Sequence[CodeLine], result: Tree) -> list[CodeLine]:
    """Without what only numbers were computed from, which say themselves now."""
    used = set(leaves(result))
    kept: list[CodeLine] = []
    for line in reversed(lines):
        if line.inst.opcode in OF_NUMBERS and Var(line.inst) not in used:
            continue
        used.update(line.uses)
        kept.append(line)
    return kept[::-1]


def _in_order(computation: Computation) -> list[Instruction]:
    seen: set[Instruction] = set()
    for inst in computation.instructions:
        if any(o not in seen for o in inst.operands):
            return computation.post_order()
        seen.add(inst)
    return computation.instructions


def _without_line(inst: Instruction, trees: dict[Instruction, Tree], inline: bool) -> Tree | None:
    if inst.opcode == "parameter":
        return tree_of(inst)
    if hands_on(inst) and not (inline and memory_of(inst)):
        return trees[inst.operands[0]]
    if inst.opcode == "tuple":
        return tuple(trees[o] for o in inst.operands)
    if inst.opcode == "get-tuple-element":
        whole = trees[inst.operands[0]]
        assert isinstance(whole, tuple)
        return whole[inst.tuple_index]
    return inline_constant(inst) if inline else None


def hands_on(inst: Instruction) -> bool:
    """Is the result the first operand as it is?"""
    if inst.opcode in PASS_THROUGH:
        return True
    if inst.opcode == "custom-call":
        return inst.custom_call_target in _ANNOTATIONS and len(inst.operands) == 1
    if inst.opcode == "broadcast" and inst.dimensions != tuple(range(inst.shape.rank)):
        return False
    return inst.opcode in ("broadcast", "reshape", "convert") and inst.operands[0].shape == inst.shape
