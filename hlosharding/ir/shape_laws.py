"""What must hold of an op's shape: it is the one that operands and attributes make, or at least fits them.

Floor: ir.  Where a shape follows, `shape_inference` says it, and this only compares; the rest is said here.  Opcodes
with neither are XLA's to check when it parses what we print.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hlosharding.errors import ModuleError
from hlosharding.ir.custom_call_targets import HAND_ON
from hlosharding.ir.graph import Instruction
from hlosharding.ir.opcode import ELEMENTWISE_BINARY, ELEMENTWISE_UNARY, NUM_OPERANDS
from hlosharding.ir.shape import Shape
from hlosharding.ir.shape_inference import OF_ANOTHER_TYPE, SHAPE_RULES, infer_shape

OF_ONE_SHAPE = {o: NUM_OPERANDS[o] for o in (ELEMENTWISE_UNARY | ELEMENTWISE_BINARY) - OF_ANOTHER_TYPE}
"""Most ops of a program, and how many operands each has: nothing is wrong where these and the result are arrays of one
shape."""

_SIZED_BY_GROUPS = frozenset({"all-gather", "all-to-all", "reduce-scatter"})


def fault_of_shape(inst: Instruction) -> str | None:
    """What is wrong with an instruction's shape, or None.

    >>> from hlosharding.ir import Builder
    >>> main = Builder("m").computation("main")
    >>> x = main.parameter(0, Shape.parse("f32[4,8]"))
    >>> fault_of_shape(main.add("transpose", x.shape, (x,), dimensions=(1, 0)))
    'the operands make f32[8,4]'
    """
    if inst.opcode in _SIZED_BY_GROUPS and _leaves_out_devices(inst):
        return None
    if inst.opcode in SHAPE_RULES:
        return _compared(inst)
    check = CHECKS.get(inst.opcode)
    try:
        return None if check is None else check(inst)
    except (IndexError, ValueError):
        return "its attributes do not fit its operands"


def _leaves_out_devices(inst: Instruction) -> bool:
    """As texts may that are read for a number of devices: they do not say how many a group of a collective has."""
    return inst.module.num_partitions == inst.module.num_replicas == 1


def _compared(inst: Instruction) -> str | None:
    try:
        made = infer_shape(inst)
    except ModuleError as error:
        return error.what
    return None if made is inst.shape or _agree(made, inst.shape) else _said(inst, made)


def _said(inst: Instruction, made: Shape) -> str:
    """Who says that the shape is `made`."""
    operand = next((o for o in inst.operands if o.shape is made), None)
    if operand is not None:
        return f"operand %{operand.name} is {made}"
    callee = next((c for c in inst.called if c.root.shape is made), None)
    return f"the operands make {made}" if callee is None else f"%{callee.name} makes {made}"


def _agree(made: Shape, stated: Shape) -> bool:
    """Bounds of dynamic dims are dims; of floating types XLA lets an op make any."""
    ours, theirs = made.leaves, stated.leaves
    return len(ours) == len(theirs) and all(
        a is b or (a.dims == b.dims and (a.element_type == b.element_type or (a.is_floating and b.is_floating)))
        for a, b in zip(ours, theirs, strict=True)
    )


def _broadcast(inst: Instruction) -> str | None:
    dims, given = inst.operands[0].shape.dims, inst.dimensions
    fits = len(dims) == len(given) == len(set(given)) and all(
        0 <= d < len(inst.shape.dims) and size in (1, inst.shape.dims[d]) for d, size in zip(given, dims, strict=True)
    )
    return None if fits else f"dims {list(dims)} do not broadcast to it by {list(given)}"


def _reshape(inst: Instruction) -> str | None:
    given = inst.operands[0].shape
    if not inst.shape.is_array:
        return "it is no array"
    return None if given.size == inst.shape.size else f"the operand has {given.size} elements"


def _iota(inst: Instruction) -> str | None:
    return None if 0 <= inst.iota_dimension < max(1, inst.shape.rank) else f"it counts along dim {inst.iota_dimension}"


def _constant(inst: Instruction) -> str | None:
    shape = Shape.from_proto(inst.proto.literal.shape)
    if not inst.shape.is_array or prod(inst.shape.dims) == 0:
        return None
    fits = shape.dims == inst.shape.dims and shape.element_type == inst.shape.element_type
    return None if fits else f"the literal is {shape}"


def _custom_call(inst: Instruction) -> str | None:
    target = inst.custom_call_target
    if target not in HAND_ON or _agree(inst.operands[0].shape, inst.shape):
        return None
    return f"{target} hands on %{inst.operands[0].name}, {inst.operands[0].shape}"


CHECKS: dict[str, Callable[[Instruction], str | None]] = {
    "broadcast": _broadcast,
    "constant": _constant,
    "custom-call": _custom_call,
    "iota": _iota,
    "reshape": _reshape,
}
