"""Ops that compute each element of the result from the elements at the same place.

Floor: rules.
"""

from __future__ import annotations

import numpy as np

from hlosharding.ir import Instruction
from hlosharding.rules.signature import Signature, SignatureMaker, same_dims


def pointwise(inst: Instruction) -> Signature:
    """Unary, binary, ternary ops and map; scalar operands (clamp bounds, a select's predicate) are whole.

    The stateful rng, too: any piece may be drawn alone (devices that hold one piece must agree on it).
    """
    return same_dims(inst)


def bitcast_convert(inst: Instruction) -> Signature:
    """Pointwise; a change of width adds or drops a minor dim that holds the parts of one element."""
    if inst.operands[0].shape.rank == inst.shape.rank:
        return same_dims(inst)
    make = SignatureMaker(inst)
    shorter = min(inst.shape.dims, inst.operands[0].shape.dims, key=len)
    for dim, size in enumerate(shorter):
        make.factor(f"d{dim}", size, [(0, dim)], [(0, dim)])
    return make.build()


def constant(inst: Instruction) -> Signature:
    """A constant of one repeated value splits anywhere; any other is whole, and each device takes its part."""
    return same_dims(inst, whole=() if is_splat(inst) else range(inst.shape.rank))


def is_splat(inst: Instruction) -> bool:
    """True for a constant whose elements are all the same bits."""
    if not inst.shape.is_array:
        return False
    if inst.shape.size <= 1:
        return True
    # Bits and not numbers: a NaN is not equal to itself, and -0 is equal to 0.
    bits = np.ascontiguousarray(inst.literal).reshape(-1)
    raw = bits.view(np.uint8).reshape(bits.size, -1)
    return bool((raw == raw[0]).all())
