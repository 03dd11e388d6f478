"""Computing one piece of an op: the same op on local shapes, unless a table names a function that does more.

Floor: partitioner.  More is needed where indices are to be shifted (`indexing`) or neighbours asked (`windowed`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hlosharding.ir import ELEMENTWISE, Instruction, Shape
from hlosharding.partitioner.choice import Choice
from hlosharding.registry import Registry
from hlosharding.rules import Signature, local_attributes
from hlosharding.spmd import Emitter


class Piece(NamedTuple):
    """What a piece function gets: the global op, how it is split, and its operands on this device."""

    inst: Instruction
    choice: Choice
    operands: tuple[Instruction, ...]
    result_shapes: tuple[Shape, ...]
    """Local, per result leaf."""

    @property
    def signature(self) -> Signature:
        """The truth that was split."""
        return self.choice.signature

    @property
    def shape(self) -> Shape:
        """Local result shape."""
        if self.inst.shape.is_tuple:
            return Shape.tuple(self.result_shapes)
        return self.result_shapes[0]

    def ways(self, factor: int) -> int:
        """How often a factor is split."""
        return self.choice.space.num_tiles_along(factor)


# Opcodes whose attributes name no size: their piece is the op itself.
_SIZELESS = ELEMENTWISE | {"broadcast", "dot", "reduce", "transpose"}

PieceFunction = Callable[[Emitter, Piece], Instruction]
PIECES: Registry[str, PieceFunction] = Registry("piece functions")


def is_computed_as_is(opcode: str) -> bool:
    """Is the piece always the op itself, with the same attributes?  (A dot may be computed in rounds.)"""
    return opcode in _SIZELESS and opcode not in PIECES and opcode != "dot"


def compute_piece(emitter: Emitter, piece: Piece) -> Instruction:
    """The local result of one op."""
    special = PIECES.get(piece.inst.opcode)
    if special is not None:
        return special(emitter, piece)
    return plain_piece(emitter, piece)


def plain_piece(
    emitter: Emitter,
    piece: Piece,
    operands: tuple[Instruction, ...] | None = None,
    *,
    shape: Shape | None = None,
    **changes: Callable[[Any], Any],
) -> Instruction:
    """The op itself on local shapes.  `changes` make an attribute from the one the piece would have."""
    operands = operands or piece.operands
    if piece.inst.opcode in _SIZELESS and not changes:
        return emitter.local(piece.inst, shape or piece.shape, operands)
    result = piece.result_shapes[0].dims if piece.result_shapes else ()
    attributes = local_attributes(piece.inst, [o.shape.dims for o in operands], result)
    if piece.inst.opcode == "custom-call" and piece.inst.proto.constrain_layout:
        attributes["operand_shapes"] = tuple(o.shape for o in operands)
    for name, change in changes.items():
        attributes[name] = change(attributes.get(name))
    return emitter.local(piece.inst, shape or piece.shape, operands, **attributes)
