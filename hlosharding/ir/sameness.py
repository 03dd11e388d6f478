"""When two ops, or two computations, do the same: told once for each opcode, whatever they are called.

Floor: ir.  Sees one instruction, or one computation: what ops read is their caller's to compare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hlosharding import wire
from hlosharding.ir.custom_calls import processor_of
from hlosharding.ir.graph import Computation, Instruction
from hlosharding.ir.opcode import ELEMENTWISE, TRANSCENDENTAL
from hlosharding.once import remembered


class Sameness:
    """Numbers for the ops and computations of a module: equal where they do the same.

    >>> import hlosharding as hs
    >>> text = "HloModule m\\nENTRY e { x = f32[4] parameter(0) y = f32[4] tanh(x) ROOT z = f32[4] tanh(y) }"
    >>> _, y, z = hs.load(text).entry.instructions
    >>> same = Sameness()
    >>> same.op(y) == same.op(z)
    True
    """

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    @remembered
    def op(self, inst: Instruction) -> int:
        """By opcode, shapes, attributes and what its callees do; which values it reads is the caller's business."""
        shapes, called = tuple([o.shape for o in inst.operands]), tuple([self.computation(c) for c in inst.called])
        key = inst.opcode, inst.shape, shapes, attributes_of(inst), processor_of(inst), called
        return self._numbers.setdefault(key, len(self._numbers))

    @remembered
    def computation(self, computation: Computation) -> int:
        """By its ops, in their order, and what each reads."""
        place = {inst: n for n, inst in enumerate(computation.instructions)}
        ops = [(self.op(i), i.parameter_number, *[place[o] for o in i.operands]) for i in place]
        return self._numbers.setdefault((place[computation.root], *ops), len(self._numbers))


def attributes_of(inst: Instruction) -> Any:
    """What an op does beyond its opcode, shapes and callees: equal for equal ones, and None where that is nothing.

    A parameter's number is its name.
    """
    return _READ.get(inst.opcode, _all_but_the_channel)(inst)


def _all_but_the_channel(inst: Instruction) -> bytes:
    """Which channel does not matter, that there is one does."""
    said = stated_of(inst, ("shape", "control_predecessor_ids", "frontend_attributes", "channel_id"))
    return said + bytes([inst.channel_id > 0])


def stated_of(inst: Instruction, but: tuple[str, ...] = ()) -> bytes:
    """All that an instruction's proto says of its result, save those fields: not its operands, callees and name."""
    proto = wire.HloInstructionProto()
    proto.CopyFrom(inst.proto)
    for field in ("name", "id", "metadata", "operand_ids", "called_computation_ids", "sharding", *but):
        proto.ClearField(field)
    return proto.SerializeToString(deterministic=True)


def _precision(inst: Instruction) -> bytes:
    return inst.proto.precision_config.SerializeToString()


def _comparison(inst: Instruction) -> tuple[str, ...]:
    return inst.comparison_direction, inst.proto.comparison_type, inst.proto.comparison_order


def _convolution(inst: Instruction) -> tuple[Any, ...]:
    return inst.conv_dims, inst.window, inst.feature_group_count, inst.batch_group_count, _precision(inst)


_SAY_NO_MORE = ELEMENTWISE - TRANSCENDENTAL - {"compare", "reduce-precision"} | {
    *("dynamic-slice", "dynamic-update-slice", "parameter", "reshape", "tuple")
}
_BY_DIMENSIONS = ("broadcast", "concatenate", "iota", "reduce", "reverse", "transpose")
_READ: dict[str, Callable[[Instruction], Any]] = {
    **dict.fromkeys(_SAY_NO_MORE, lambda _: None),
    **dict.fromkeys(TRANSCENDENTAL, lambda inst: inst.proto.result_accuracy.SerializeToString()),
    **dict.fromkeys(_BY_DIMENSIONS, lambda inst: inst.dimensions),
    "compare": _comparison,
    "constant": lambda inst: inst.proto.literal.SerializeToString(),
    "convolution": _convolution,
    "dot": lambda inst: (inst.dot_dims, _precision(inst)),
    "gather": lambda inst: (inst.gather_dims, inst.gather_slice_sizes, inst.proto.indices_are_sorted),
    "get-tuple-element": lambda inst: inst.tuple_index,
    "pad": lambda inst: inst.padding,
    "slice": lambda inst: inst.slice_dims,
    **dict.fromkeys(("reduce-window", "select-and-scatter"), lambda inst: inst.window),
    "scatter": lambda inst: (inst.scatter_dims, inst.proto.indices_are_sorted, inst.proto.unique_indices),
    "sort": lambda inst: (inst.dimensions, inst.proto.is_stable),
}
"""What counts of the attributes of frequent ops; of others all of them, which takes longer to ask."""


def sets_full_size(inst: Instruction) -> bool:
    """Does a `set-dimension-size` set the size that its operand has: is its result the operand?"""
    array, size = inst.operands
    if array.shape != inst.shape or inst.shape.dynamic_dims or size.opcode != "constant":
        return False
    return int(size.literal) == array.shape.dims[inst.proto.dimensions[0]]
