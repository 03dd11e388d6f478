"""One device's part of an op: what a function that emits it is given, and the emissions that most ops need.

Floor: partitioner.  How each opcode is emitted says the table in `local_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hlosharding.ir import Instruction, Shape, is_neutral
from hlosharding.partitioner.choice import FactorChoice
from hlosharding.rules import Signature, has_local_attributes, local_attributes
from hlosharding.spmd import Emitter, identity


class LocalOp(NamedTuple):
    """The global op, how it is split, and its operands on this device."""

    inst: Instruction
    """The global op."""
    choice: FactorChoice
    operands: tuple[Instruction, ...]
    """Local."""
    result_shapes: tuple[Shape, ...]
    """Local, per result leaf."""

    @property
    def signature(self) -> Signature:
        """The signature that was split."""
        return self.choice.signature

    @property
    def shape(self) -> Shape:
        """Local result shape."""
        if self.inst.shape.is_tuple:
            return Shape.tuple(self.result_shapes)
        return self.result_shapes[0]

    def num_tiles(self, factor: int) -> int:
        """How often a factor is split."""
        return self.choice.space.num_tiles_along(factor)


EmitLocal = Callable[[Emitter, LocalOp], Instruction]


def emit_same_op(
    emitter: Emitter,
    op: LocalOp,
    operands: tuple[Instruction, ...] | None = None,
    *,
    shape: Shape | None = None,
    **changes: Callable[[Any], Any],
) -> Instruction:
    """The op itself on local shapes.  `changes` make an attribute from the one the local op would have."""
    operands = operands or op.operands
    if not changes and not has_local_attributes(op.inst.opcode) and op.inst.opcode != "custom-call":
        return emitter.local(op.inst, shape or op.shape, operands)
    result = op.result_shapes[0].dims if op.result_shapes else ()
    attributes = local_attributes(op.inst, [o.shape.dims for o in operands], result)
    if op.inst.opcode == "custom-call" and op.inst.proto.constrain_layout:
        attributes["operand_shapes"] = tuple(o.shape for o in operands)
    for name, change in changes.items():
        attributes[name] = change(attributes.get(name))
    return emitter.local(op.inst, shape or op.shape, operands, **attributes)


def emit_reduce(emitter: Emitter, op: LocalOp) -> Instruction:
    """A reduction; where its initial value is more than neutral: from the neutral element, and then combined with it.

    XLA takes initial values for neutral: where a tile has one element along the reduced dims it forgets them.
    """
    kind = op.choice.reduce_kind
    if kind is None or kind == "other" or is_neutral(op.operands[1], kind):
        return emit_same_op(emitter, op)
    x, init = op.operands
    neutral = emitter.constant(identity(kind, init.shape))
    local = emit_same_op(emitter, op, (x, neutral))
    return emitter.binary(kind, local, emitter.broadcast(init, local.shape.dims, ()))


def emit_broadcast(emitter: Emitter, op: LocalOp) -> Instruction:
    """A broadcast, made once for equal broadcasts of one value: programs are full of them."""
    return emitter.broadcast(op.operands[0], op.result_shapes[0].dims, op.inst.dimensions)
