"""A module made over, for a second opinion of XLA's one-device run: in f64, or with its ops kept apart.

XLA simplifies before it computes.  Where it simplifies wrongly (a dynamic slice of a dynamic slice whose start is out
of range), its run with a barrier behind every op says what the program means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from hlosharding.ir import Builder, Computation, ComputationBuilder, Instruction, Module, Shape

Callees = dict[Computation, Computation]
Remake = Callable[[ComputationBuilder, Instruction, Sequence[Instruction], Callees], Instruction]


def wide(array: np.ndarray) -> np.ndarray:
    """Floats as f64, complex numbers as c128, all others as they are."""
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    is_float = array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16
    return array.astype(np.float64) if is_float else array


def widened(module: Module) -> Module:
    """The module with f64 for every float and c128 for c64, as the yardstick of rounding."""
    return _made_over(module, _wider)


def kept_apart(module: Module) -> Module:
    """The module with a barrier behind every op of its entry."""
    return _made_over(module, _fenced)


def _made_over(module: Module, rematerialize: Remake) -> Module:
    builder, new = Builder(f"{module.name}_made_over"), Callees()
    for computation in [*(c for c in module.computations if c is not module.entry), module.entry]:
        target = builder.computation(computation.name)
        values: dict[Instruction, Instruction] = {}
        for inst in computation.instructions:
            values[inst] = rematerialize(target, inst, [values[o] for o in inst.operands], new)
        target.root(values[computation.root])
        new[computation] = target.computation
    return builder.finish(target)


def _wider(target: ComputationBuilder, inst: Instruction, operands: Sequence[Instruction], new: Callees) -> Instruction:
    extra: dict[str, Any] = {"literal": wide(inst.literal)} if inst.opcode == "constant" else {}
    shape, called = _wide_shape(inst.shape), [new[c] for c in inst.called]
    return target.add(inst.opcode, shape, operands, like=inst, name=inst.name, called=called, **extra)


def _wide_shape(shape: Shape) -> Shape:
    if shape.is_tuple:
        return Shape.tuple(tuple(_wide_shape(s) for s in shape.tuple_shapes))
    kind = {"f32": "f64", "bf16": "f64", "f16": "f64", "c64": "c128"}.get(shape.element_type)
    return shape if kind is None else shape.with_type(kind)


def _fenced(
    target: ComputationBuilder, inst: Instruction, operands: Sequence[Instruction], new: Callees
) -> Instruction:
    called = [new[c] for c in inst.called]
    made = target.add(inst.opcode, inst.shape, operands, like=inst, name=inst.name, called=called)
    if not inst.computation.is_entry or not inst.shape.is_array:
        return made
    return target.add("opt-barrier", inst.shape, (made,))
