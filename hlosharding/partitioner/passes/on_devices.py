"""Which integer a scalar of a per-device program is on each device: where slices and updates begin.

Floor: partitioner.
"""

from __future__ import annotations

import numpy as np

from hlosharding.ir import Instruction
from hlosharding.spmd import Devices, integers_of

_DEEPEST = 8
"""Ops from a partition id to the integer, at most."""


def on_devices(inst: Instruction, devices: Devices, depth: int = _DEEPEST) -> np.ndarray | None:
    """The integer that `inst` is on each device; None where that depends on more than the device."""
    if not depth or not inst.shape.is_array or inst.shape.size != 1 or inst.shape.dtype.kind not in "iu":
        return None
    return integers_of(inst, [on_devices(operand, devices, depth - 1) for operand in inst.operands], devices)
