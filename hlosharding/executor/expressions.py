"""An op as the Python expression a person would write: operators, literals, and broadcasting without a call.

Floor: executor.  Every form here lowers to the op that the emitters' own form would make; what has no such form is
left to the emitters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hlosharding.executor.emit import EmittedOp, WrittenProgram, emit
from hlosharding.executor.lax_elementwise import SIMPLE
from hlosharding.executor.lax_windows import combiner, starts_at_identity
from hlosharding.executor.text import tuple_text
from hlosharding.ir import Instruction

ATOM, UNARY, PRODUCT, SUM, SHIFT, AND, XOR, OR, COMPARISON = range(9, 0, -1)
"""How tightly an expression binds, as in Python's grammar."""
_INFIX = {
    "add": ("+", SUM), "subtract": ("-", SUM), "multiply": ("*", PRODUCT), "divide": ("/", PRODUCT),
    "shift-left": ("<<", SHIFT), "shift-right-arithmetic": (">>", SHIFT), "shift-right-logical": (">>", SHIFT),
    "and": ("&", AND), "xor": ("^", XOR), "or": ("|", OR),
}  # fmt: skip
_COMPARE = {"EQ": "==", "NE": "!=", "GE": ">=", "GT": ">", "LE": "<=", "LT": "<"}
_CALLS = {"maximum": "jnp.maximum", "minimum": "jnp.minimum"}
_PREFIX = {"negate": "-", "not": "~"}
_FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
_SIGNED, _UNSIGNED = frozenset({"s8", "s16", "s32", "s64"}), frozenset({"u8", "u16", "u32", "u64"})
_INTEGERS = _SIGNED | _UNSIGNED
_NUMBERS = _FLOATS | _INTEGERS | {"c64", "c128"}
# Opcode -> element types on which the operator is the op (JAX's `/` and `>>` ask for the type, as Python does).
_TYPES = {
    "add": _NUMBERS, "subtract": _NUMBERS, "multiply": _NUMBERS, "divide": _FLOATS | {"c64", "c128"},
    "shift-left": _INTEGERS, "shift-right-arithmetic": _SIGNED, "shift-right-logical": _UNSIGNED,
    "and": _INTEGERS | {"pred"}, "or": _INTEGERS | {"pred"}, "xor": _INTEGERS | {"pred"},
    "maximum": _FLOATS | _INTEGERS, "minimum": _FLOATS | _INTEGERS, "negate": _NUMBERS, "not": _INTEGERS | {"pred"},
    "compare": _FLOATS | _INTEGERS,
}  # fmt: skip
# `jnp.sum` adds narrower floats up in f32, which is another op.
_KEPT = {"add": ("sum", frozenset({"f32", "f64"})), "maximum": ("max", _FLOATS), "minimum": ("min", _FLOATS)}
_VIEWS = frozenset({"broadcast", "reshape"})
_NUMPY = frozenset({"constant", "get-dimension-size", "replica-id"})
"""Ops whose expressions are numpy's values: operators on two of them would be numpy's, not JAX's."""


@dataclass(frozen=True, slots=True)
class ArrayForm:
    """Another array with the value's elements: `places[d]` is its dim that is the value's dim d, None for a new one."""

    text: str
    level: int
    dims: tuple[int, ...]
    places: tuple[int | None, ...]

    @property
    def is_aligned(self) -> bool:
        """Does numpy's broadcasting take it for the value as it is?"""
        offset = len(self.places) - len(self.dims)
        return offset >= 0 and all(size == 1 or self.places[d + offset] == d for d, size in enumerate(self.dims))

    def indexed(self) -> ArrayForm | None:
        """Itself with `None` where the value has dims of its own; None where this does not suffice."""
        used = [p for p in self.places if p is not None]
        # An index binds tighter than any sign.
        if self.level < ATOM or not used or used != list(range(len(self.dims))):
            return None
        first = next(d for d, p in enumerate(self.places) if p is not None)
        tokens = [":" if p is not None else "None" for p in self.places[first:]]
        dims = tuple(1 if p is None else self.dims[p] for p in self.places[first:])
        index = "..., None" if tokens[-1] == "None" and tokens.count("None") == 1 else ", ".join(tokens)
        return ArrayForm(f"{self.text}[{index}]", ATOM, dims, self.places)


@dataclass(frozen=True, slots=True)
class Expression:
    """The text of a value, and what else may stand for it."""

    text: str
    dims: tuple[int, ...]
    level: int = ATOM
    forms: tuple[ArrayForm, ...] = ()
    """Arrays that broadcast to it where operators stand, the nearest to the source first."""
    literal: str = ""
    ops: int = 0
    """How many ops are written in it."""
    is_array: bool = True
    """False for what may be a value of numpy."""
    is_name: bool = False
    """True for a value that has a name already."""
    excess: int = 0
    """By how many characters its names are longer than most: names do not decide what stands on one line."""

    @property
    def width(self) -> int:
        """Its characters, with names of usual length."""
        return len(self.text) - self.excess

    @property
    def itself(self) -> ArrayForm:
        """The value as a form of its own."""
        return ArrayForm(self.text, self.level, self.dims, tuple(range(len(self.dims))))

    @property
    def broadcasting(self) -> ArrayForm:
        """The shortest that numpy's broadcasting takes for the value."""
        aligned = [f for f in self.forms if f.is_aligned]
        indexed = [g for f in self.forms if (g := f.indexed()) is not None]
        return min((*aligned, *indexed, self.itself), key=lambda form: len(form.text))


_NAME = 12
"""Characters of most names: what longer ones take does not count against a line's width.  With 24 programs are 1.07
times as long, with 6 0.985 times, and lines reach beyond the screen."""


def named(text: str, inst: Instruction, dims: tuple[int, ...]) -> Expression:
    """A value that has a name."""
    return Expression(text, dims, is_array=inst.opcode not in _NUMPY, is_name=True, excess=len(text) - _NAME)


def is_view(inst: Instruction) -> bool:
    """Does the op only spread or regroup what it is given?"""
    return inst.opcode in _VIEWS and len(inst.operands) == 1


def is_free(inst: Instruction) -> bool:
    """Is the op a view that may be written at every use?  That of a row, or of a sum, is worth a name instead."""
    return is_view(inst) and inst.operands[0].opcode not in _OTHER_FORMS


def has_operator(inst: Instruction) -> bool:
    """Is the op written so that numpy's broadcasting holds?"""
    return inst.opcode != "dot" and _operator(inst) is not None


def expression_of(inst: Instruction, args: Sequence[Expression], program: WrittenProgram) -> Expression:
    """The op on its operands, each of which is used once in the text."""
    excess = sum(a.excess for a in args)
    if is_view(inst) and inst.operands[0].shape.element_type == inst.shape.element_type:
        return replace(_view(inst, args[0], program), excess=excess)
    write = _operator(inst)
    found = write and _with_operator(inst, args, write)
    return replace(found or _by_emitter(inst, args, program), ops=1 + sum(a.ops for a in args), excess=excess)


def _by_emitter(inst: Instruction, args: Sequence[Expression], program: WrittenProgram) -> Expression:
    text = emit(EmittedOp(inst, tuple(a.text for a in args), program))
    handed_on = next((a for a in args[:1] if a.text == text), None)
    if handed_on is not None:
        return handed_on
    other = _OTHER_FORMS.get(inst.opcode)
    forms = [other(inst, args)] if other else []
    name = text.partition("(")[0]
    if inst.opcode in SIMPLE and text == f"{name}({args[0].text})":
        forms = [replace(f, text=f"{name}({f.text})", level=ATOM) for f in args[0].forms]
    dims = inst.shape.dims if inst.shape.is_array else ()
    return Expression(text, dims, forms=tuple(f for f in forms if f), is_array=inst.opcode not in _NUMPY)


# ---- operators


Write = Callable[[Sequence[ArrayForm]], tuple[str, int]]


def _operator(inst: Instruction) -> Write | None:
    """How the op is written on forms of its operands, if it has an operator (or a function that broadcasts)."""
    opcode = inst.opcode
    if opcode == "select" and inst.operands[0].shape.dims == inst.shape.dims:
        return lambda forms: (f"jnp.where({', '.join(f.text for f in forms)})", ATOM)
    if opcode == "dot":
        return _infix("@", PRODUCT) if _is_matmul(inst) else None
    types = _TYPES.get(opcode)
    if types is None or not all(o.shape.is_array and o.shape.element_type in types for o in inst.operands):
        return None
    if opcode == "compare":
        total = "TOTAL" in (inst.proto.comparison_type[:5], inst.proto.comparison_order)
        return None if total else _infix(_COMPARE[inst.comparison_direction], COMPARISON)
    if opcode in _INFIX:
        return _infix(*_INFIX[opcode])
    if opcode in _PREFIX:
        return lambda forms: (f"{_PREFIX[opcode]}{_within(forms[0], UNARY)}", UNARY)
    return lambda forms: (f"{_CALLS[opcode]}({', '.join(f.text for f in forms)})", ATOM)


def _infix(sign: str, level: int) -> Write:
    is_rare = level <= SHIFT

    def write(forms: Sequence[ArrayForm]) -> tuple[str, int]:
        # Among signs whose order few know by heart every operand of several words stands in brackets.
        left = _within(forms[0], UNARY if is_rare else level)
        # On the right a sign of the same level needs them, too: Python takes the left one first, and floats round.
        return f"{left} {sign} {_within(forms[1], UNARY if is_rare else level + 1)}", level

    return write


def _is_matmul(inst: Instruction) -> bool:
    dims, (lhs, rhs), config = inst.dot_dims, (o.shape for o in inst.operands), inst.proto.precision_config
    types = {lhs.element_type, rhs.element_type, inst.shape.element_type}
    is_plain = not any(config.operand_precision) and not config.algorithm and not dims.lhs_batch
    is_last = dims.lhs_contracting == (lhs.rank - 1,) and dims.rhs_contracting == (0,)
    return is_plain and is_last and rhs.rank == 2 and len(types) == 1 and types <= _FLOATS and bool(lhs.size)


def _within(form: ArrayForm, level: int) -> str:
    return form.text if form.level >= level else f"({form.text})"


def _with_operator(inst: Instruction, args: Sequence[Expression], write: Write) -> Expression | None:
    """The op by its operator, its operands as short as broadcasting allows; None where nothing tells JAX the type."""
    if not args[0].is_array and not (args[0].literal and any(a.is_array for a in args)):
        return None
    if inst.opcode == "dot":
        forms = [a.itself for a in args]
    else:
        forms = _operands(args, inst.shape.dims, first=1 if inst.opcode == "select" else 0)
        is_call = inst.opcode == "select" or inst.opcode in _CALLS
        if is_call and all(a.text == f.text for a, f in zip(args, forms, strict=True)):
            return None
    text, level = write(forms)
    return Expression(text, inst.shape.dims, level, tuple(_kept_forms(inst, args, write)))


def _operands(args: Sequence[Expression], dims: tuple[int, ...], first: int) -> list[ArrayForm]:
    """A form of each operand, so that together they broadcast to `dims`; one from `first` on says their type."""
    forms = [_short(a) for a in args]
    if all(a.literal for a in args[first:]):
        forms[first] = args[first].itself
    # Short forms may all be smaller than the result: one after the other then stands as it is.
    for number, arg in enumerate(args):
        if np.broadcast_shapes(*(f.dims for f in forms)) == dims:
            break
        forms[number] = arg.itself
    return forms


def _short(arg: Expression) -> ArrayForm:
    level = UNARY if arg.literal.startswith("-") else ATOM
    return ArrayForm(arg.literal, level, (), (None,) * len(arg.dims)) if arg.literal else arg.broadcasting


def _kept_forms(inst: Instruction, args: Sequence[Expression], write: Write) -> Iterator[ArrayForm]:
    """Forms of the result where one operand has forms and all others are scalars."""
    arrays = [i for i, a in enumerate(args) if not a.literal]
    if len(arrays) != 1 or inst.opcode in ("select", "dot"):
        return
    for form in args[arrays[0]].forms:
        forms = [form if i in arrays else _short(a) for i, a in enumerate(args)]
        text, level = write(forms)
        yield ArrayForm(text, level, form.dims, form.places)


# ---- views


def _view(inst: Instruction, arg: Expression, program: WrittenProgram) -> Expression:
    """A broadcast or a reshape: another way to see the forms of its operand."""
    dims = inst.shape.dims
    sources = _sources(inst)
    if sources is None:
        text = emit(EmittedOp(inst, (arg.text,), program))
        return Expression(text, dims, ops=arg.ops + 1, is_array=arg.is_array)
    forms = tuple(
        replace(form, places=tuple(None if s is None else form.places[s] for s in sources))
        for form in (*arg.forms, arg.itself)
    )
    exact = next((f for f in forms if f.dims == dims and f.is_aligned), None)
    if exact is not None:
        return Expression(exact.text, dims, exact.level, forms, "", arg.ops, arg.is_array, arg.is_name)
    text = next((t for f in forms if (t := _call(inst, f))), "") or emit(EmittedOp(inst, (arg.text,), program))
    return Expression(text, dims, ATOM, forms, "", arg.ops, arg.is_array)


def _sources(inst: Instruction) -> tuple[int | None, ...] | None:
    """Per dim of the result the operand's dim that it is, None for a new one; None for other reshapes."""
    before, after = inst.operands[0].shape.dims, inst.shape.dims
    if inst.opcode == "broadcast":
        return tuple(inst.dimensions.index(d) if d in inst.dimensions else None for d in range(len(after)))
    if not all(before) or [s for s in before if s > 1] != [s for s in after if s > 1]:
        return None
    places = iter([d for d, s in enumerate(before) if s > 1])
    return tuple(next(places) if s > 1 else None for s in after)


def _call(inst: Instruction, form: ArrayForm) -> str:
    """The view as one call on a form: a reshape if it has all elements, a broadcast if its dims are placed."""
    dims = tuple_text(inst.shape.dims)
    if inst.opcode == "reshape" and math.prod(form.dims) == inst.shape.size:
        return f"lax.reshape({form.text}, {dims})"
    if not form.dims:
        return f"lax.broadcast({form.text}, {dims})"
    if any(d not in form.places for d in range(len(form.dims))):
        return ""
    return f"lax.broadcast_in_dim({form.text}, {dims}, {tuple_text(map(form.places.index, range(len(form.dims))))})"


def _kept(inst: Instruction, args: Sequence[Expression]) -> ArrayForm | None:
    """A reduction that keeps its dims."""
    operand = inst.operands[0].shape
    name = combiner(inst.called[0]) if len(args) == 2 else None
    kept, types = _KEPT.get(name or "", ("", frozenset[str]()))
    if name is None or operand.element_type not in types or not inst.dimensions or not args[0].is_array:
        return None
    if not starts_at_identity(name, inst.operands[1]) or not operand.size:
        return None
    axis = str(inst.dimensions[0]) if len(inst.dimensions) == 1 else tuple_text(inst.dimensions)
    dims = tuple(1 if d in inst.dimensions else s for d, s in enumerate(operand.dims))
    places = tuple(d for d in range(operand.rank) if d not in inst.dimensions)
    return ArrayForm(f"jnp.{kept}({args[0].text}, axis={axis}, keepdims=True)", ATOM, dims, places)


def _indexed(inst: Instruction, args: Sequence[Expression]) -> ArrayForm | None:
    """A slice of one row: the row by its number, without its dim."""
    dims, before = inst.shape.dims, inst.operands[0].shape.dims
    cut = [d for d, size in enumerate(before) if dims[d] != size]
    if len(cut) != 1 or dims[cut[0]] != 1 or not args[0].is_array or args[0].level < ATOM:
        return None
    (dim,) = cut
    index = ", ".join([*[":"] * dim, str(inst.slice_dims[dim].start)])
    places = tuple(None if d == dim else d - (d > dim) for d in range(len(dims)))
    return ArrayForm(f"{args[0].text}[{index}]", ATOM, (*dims[:dim], *dims[dim + 1 :]), places)


_OTHER_FORMS: dict[str, Callable[[Instruction, Sequence[Expression]], ArrayForm | None]] = {
    "reduce": _kept,
    "slice": _indexed,
}
