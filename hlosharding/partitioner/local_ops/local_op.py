"""One device's part of an op: what a function that emits it is given, and the emissions that most ops need; index
values that address rows of a split array, as gather, scatter and dynamic slices have them.

Floor: partitioner.  How each opcode is emitted says the table in `local_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hlosharding.ir import Instruction, Shape, is_neutral
from hlosharding.partitioner.choice import FactorChoice
from hlosharding.rules import Signature, Whole, has_local_attributes, local_attributes
from hlosharding.sharding import tile_table
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
    # The layouts of a custom call are those of its operand shapes: with the global ones, batched LAPACK calls that were
    # split were wrong.
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


def split_row_dims(op: LocalOp) -> list[int]:
    """Dims of the array (operand 0) that indices address and that are split."""
    dims = ((dim, factor) for dim, factors in enumerate(op.signature.operands[0]) for factor in factors)
    owes = [factor.owes for factor in op.signature.factors]
    return [d for d, f in dims if isinstance(o := owes[f], Whole) and o.indexed and op.num_tiles(f) > 1]


def row_starts(emitter: Emitter, op: LocalOp, dim: int) -> tuple[int, ...]:
    """The first row of every device's tile of the array."""
    step = op.operands[0].shape.dims[dim]
    table = tile_table(op.choice.operands[0], op.operands[0].shape.rank, emitter.num_partitions)
    return tuple(index[dim] * step for index in table)


def as_index(emitter: Emitter, number: Instruction, like: Shape) -> Instruction:
    """A scalar in the element type of `like`."""
    shape = Shape.array(like.element_type)
    return number if number.shape is shape else emitter.op("convert", shape, (number,))


def signed_indices(emitter: Emitter, indices: Instruction, size: int) -> Instruction:
    """Indices that a shift cannot wrap into range: signed, and of 32 bits at least.

    An index past the end of the whole array then addresses padding rows of the last device, which are garbage anyway,
    or none; a negative one stays negative.  `size`: of the largest dim that they address.
    """
    has_64_bits = indices.shape.element_type in ("u64", "s64")
    wide = "s64" if has_64_bits or size > np.iinfo(np.int32).max else "s32"
    if indices.shape.element_type == wide:
        return indices
    return emitter.op("convert", indices.shape.with_type(wide), (indices,))


def shifted_columns(
    emitter: Emitter, indices: Instruction, vector_dim: int, shifts: dict[int, Instruction], columns: int
) -> Instruction:
    """The indices less `shifts[c]` in column c."""
    if vector_dim >= indices.shape.rank:
        return emitter.binary("subtract", indices, emitter.full(shifts[0], indices.shape))
    line = [
        emitter.reshape(shifts[c], (1,)) if c in shifts else emitter.constant(np.zeros(1, indices.shape.dtype))
        for c in range(columns)
    ]
    row = emitter.concatenate(line, 0)
    return emitter.binary("subtract", indices, emitter.broadcast(row, indices.shape.dims, (vector_dim,)))
