"""One device's part of an op: what a function that emits it is given, and the emission that most ops need.

Floor: partitioner.  How each opcode is emitted says the table in `local_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.choice import FactorChoice
from hlosharding.rules import Signature, local_attributes
from hlosharding.spmd import Emitter


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
    result = op.result_shapes[0].dims if op.result_shapes else ()
    attributes = local_attributes(op.inst, [o.shape.dims for o in operands], result)
    if op.inst.opcode == "custom-call" and op.inst.proto.constrain_layout:
        attributes["operand_shapes"] = tuple(o.shape for o in operands)
    for name, change in changes.items():
        attributes[name] = change(attributes.get(name))
    return emitter.local(op.inst, shape or op.shape, operands, **attributes)
