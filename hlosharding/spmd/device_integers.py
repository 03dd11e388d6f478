"""Small integers that each device can be known to hold: made from its partition id, constants and tables.

Floor: spmd.  One number per device; knows single ops, not how values flow between them (`uniformity.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hlosharding.ir import Instruction
from hlosharding.spmd.participants import Devices

_ARITHMETIC: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "minimum": np.minimum, "maximum": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.logical_not,
    "select": lambda p, a, b: np.where(p != 0, a, b),
}  # fmt: skip
_COMPARE = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
            "GE": np.greater_equal}  # fmt: skip
_ONE_VALUE = frozenset({"convert", "reshape", "copy", "bitcast", "broadcast"})


def integers_of(inst: Instruction, operands: Sequence[np.ndarray | None], devices: Devices) -> np.ndarray | None:
    """The integer that `inst` is on each device, given those of its operands; None where that is not known."""
    if inst.opcode == "partition-id":
        return np.arange(devices.count) % devices.partitions
    if inst.opcode == "replica-id":
        return np.arange(devices.count) // devices.partitions
    if not inst.shape.is_array or inst.shape.size != 1 or inst.shape.dtype.kind not in "iub":
        return None
    if inst.opcode == "constant":
        return np.full(devices.count, int(inst.literal.reshape(-1)[0]))
    if inst.opcode == "dynamic-slice" and inst.operands[0].opcode == "constant" and len(operands) == 2:
        table, at = inst.operands[0].literal.reshape(-1), operands[1]
        return None if at is None else table[np.clip(at, 0, len(table) - 1)].astype(np.int64)
    known = [values for values in operands if values is not None]
    return _computed(inst, known) if known and len(known) == len(operands) else None


def _computed(inst: Instruction, operands: Sequence[np.ndarray]) -> np.ndarray | None:
    match inst.opcode:
        case opcode if opcode in _ONE_VALUE:
            return operands[0]
        case "compare":
            return _COMPARE[inst.comparison_direction](*operands).astype(np.int64)
        case "divide" if _are_natural(operands):
            return operands[0] // operands[1]
        case "remainder" if _are_natural(operands):
            return operands[0] % operands[1]
        case "clamp":
            return np.clip(operands[1], operands[0], operands[2])
        case opcode if opcode in _ARITHMETIC:
            return np.asarray(_ARITHMETIC[opcode](*operands)).astype(np.int64)
        case _:
            return None


def _are_natural(operands: Sequence[np.ndarray]) -> bool:
    """Numbers on which numpy and HLO divide alike."""
    return bool((operands[1] > 0).all() and (operands[0] >= 0).all())
