"""Writes ops where one stands, and puts their value into its place.

Floor: partitioner.  New ops may be given a sharding; without one they may take any.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from hlosharding.ir import ELEMENTWISE, Computation, Instruction, Module, NameUniquer, Shape, rewrite
from hlosharding.sharding import HloSharding


class Fresh:
    """Names and ids that no instruction of a module has."""

    def __init__(self, module: Module) -> None:
        self.names = NameUniquer(i.name for i in module.instructions)
        self.ids = count(len(module.instructions))


class Writer:
    """Writes ops in front of one, which they replace."""

    def __init__(self, inst: Instruction, fresh: Fresh) -> None:
        self.inst = inst
        self.sharding = inst.module.sharding(inst)
        self._fresh = fresh
        self._at = inst.computation.instructions.index(inst)

    def __call__(
        self,
        opcode: str,
        *operands: Instruction,
        shape: Shape | None = None,
        sharding: HloSharding | None = None,
        **attributes: Any,
    ) -> Instruction:
        """A new op; without a shape it gets the one that follows."""
        place, name = self._place(), self._fresh.names.fresh(opcode)
        computation = self.inst.computation
        made = rewrite.insert(computation, place, opcode, shape, operands, name=name, like=self.inst, **attributes)
        return self._sharded(made, sharding)

    def number(self, value: int) -> Instruction:
        """A number, everywhere in an array like operand 0."""
        shape = self.inst.operands[0].shape
        return self.full(np.asarray(value).astype(np.uint64).astype(shape.dtype), shape)

    def constant(self, value: npt.NDArray[Any]) -> Instruction:
        """A scalar."""
        return self("constant", shape=Shape.from_dtype(value.dtype, ()), literal=value)

    def full(
        self, value: npt.NDArray[Any] | Instruction, shape: Shape, sharding: HloSharding | None = None
    ) -> Instruction:
        """An array that holds one scalar everywhere."""
        if not isinstance(value, Instruction):
            value = self("constant", shape=Shape.array(shape.element_type), literal=value)
        return self("broadcast", value, shape=shape, dimensions=(), sharding=sharding) if shape.dims else value

    def copy(self, inst: Instruction, operands: Sequence[Instruction]) -> Instruction:
        """An op of another computation, with its sharding."""
        made = rewrite.copy(inst, self._place(), operands, to=self.inst.computation)
        rewrite.rename(made, self._fresh.names.fresh(inst.name))
        made.id = inst.id  # tables of the module are read by it until it is renumbered
        return made

    def on_arrays(
        self, inst: Instruction, operands: Sequence[Instruction], dims: Sequence[int], sharding: HloSharding | None
    ) -> Instruction:
        """An elementwise op on arrays of other sizes than it has."""
        made = self.copy(inst, operands)
        # The sharding of the op that it is like is for that one's sizes: no table may find it for these.
        made.id = -1
        rewrite.set_shape(made, inst.shape.with_dims(tuple(dims)))
        return self._sharded(made, sharding)

    def replace_by(self, value: Instruction) -> None:
        """All that read the op read `value`, which takes its name and its sharding, where it is new."""
        inst, name = self.inst, self.inst.name
        rewrite.replace_uses(inst, value)
        rewrite.remove(inst)
        if value not in inst.operands and value.opcode != "parameter":
            value.id = inst.id
            rewrite.rename(value, name)

    def _sharded(self, made: Instruction, sharding: HloSharding | None) -> Instruction:
        if sharding is not None:
            made.id = next(self._fresh.ids)
            made.module.shardings[made.id] = sharding
        return made

    def _place(self) -> int:
        """Everything that is written stands before the op, so that its place moves by one."""
        self._at += 1
        return self._at - 1


Form = Callable[[Writer], None]
"""What puts an op into a plain form."""


def is_elementwise(computation: Computation) -> bool:
    """Is a scalar computation one of elementwise ops alone, which arrays may be given as well?"""
    known = ELEMENTWISE | {"parameter", "constant"}
    return all(i.opcode in known and i.shape.is_array for i in computation.instructions)


def elementwise(
    write: Writer, computation: Computation, arrays: Sequence[Instruction], sharding: HloSharding | None
) -> Instruction:
    """What a scalar computation (`is_elementwise`) makes of each element of the arrays."""
    made, dims = dict[Instruction, Instruction](), arrays[0].shape.dims
    for inst in computation.instructions:
        if inst.opcode == "parameter":
            made[inst] = arrays[inst.parameter_number]
        elif inst.opcode == "constant":
            made[inst] = write.full(inst.literal, inst.shape.with_dims(dims), sharding)
        else:
            made[inst] = write.on_arrays(inst, [made[o] for o in inst.operands], dims, sharding)
    return made[computation.root]
