"""When two instructions, or two computations, do the same: a key that ignores names, metadata and channels.

Floor: executor.
"""

from __future__ import annotations

from typing import Any

from hlosharding import wire
from hlosharding.ir import Computation, Instruction, processor_of

_NOT_MEANING = (
    "name", "id", "operand_ids", "control_predecessor_ids", "called_computation_ids", "sharding", "metadata", "shape",
    "parameter_number", "tuple_index", "frontend_attributes",
)  # fmt: skip

_PLAIN = frozenset(
    "parameter tuple get-tuple-element abs add and divide maximum minimum multiply negate not or power select sign"
    " subtract xor".split()
)
"""Opcodes that have no other attributes.  Large programs are made of them."""


class Structure:
    """Keys of one module's instructions and computations, each computed once."""

    def __init__(self) -> None:
        self._instructions: dict[Instruction, tuple[Any, ...]] = {}
        self._computations: dict[Computation, int] = {}
        self._numbers: dict[Any, int] = {}
        self._number_of: dict[Instruction, int] = {}

    def instruction(self, inst: Instruction) -> tuple[Any, ...]:
        """Opcode, shapes and attributes, called computations included; operands are the caller's business."""
        key = self._instructions.get(inst)
        if key is None:
            key = (
                inst.opcode,
                inst.shape,
                tuple(o.shape for o in inst.operands),
                _attributes(inst),
                processor_of(inst),
                tuple(self.computation(c) for c in inst.called),
            )
            self._instructions[inst] = key
        return key

    def number(self, inst: Instruction) -> int:
        """One number for all instructions of one key."""
        number = self._number_of.get(inst)
        if number is None:
            number = self._number_of[inst] = self._numbers.setdefault(self.instruction(inst), len(self._numbers))
        return number

    def computation(self, computation: Computation) -> int:
        """One number for all computations that compute the same in the same order."""
        number = self._computations.get(computation)
        if number is None:
            place = {inst: i for i, inst in enumerate(computation.instructions)}
            parts = [
                (
                    self.instruction(i),
                    tuple(place[o] for o in i.operands),
                    i.parameter_number if i.opcode == "parameter" else i.tuple_index,
                )
                for i in computation.instructions
            ]
            key = (tuple(parts), place[computation.root])
            number = self._numbers.setdefault(key, len(self._numbers))
            self._computations[computation] = number
        return number


def _attributes(inst: Instruction) -> bytes:
    if inst.opcode in _PLAIN:
        return b""
    proto = wire.HloInstructionProto()
    proto.CopyFrom(inst.proto)
    for field in _NOT_MEANING:
        proto.ClearField(field)
    # Which channel does not matter, that there is one does.
    proto.channel_id = min(1, inst.channel_id)
    return proto.SerializeToString(deterministic=True)
