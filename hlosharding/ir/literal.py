"""Constants: LiteralProto to numpy and back, every element type; tuples are only read.

Floor: ir.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hlosharding import wire
from hlosharding.errors import ModuleError
from hlosharding.ir.shape import Shape

# Types kept as repeated numbers; all others are raw little-endian bytes in the field of their own name.
_REPEATED = {"pred": "preds", "s32": "s32s", "s64": "s64s", "u32": "u32s", "u64": "u64s", "f32": "f32s", "f64": "f64s"}
_COMPLEX = {"c64": ("c64s", np.float32), "c128": ("c128s", np.float64)}
_SUB_BYTE = {"s4": 4, "u4": 4, "s2": 2, "u2": 2, "f4e2m1fn": 4}


def read_literal(proto: Any) -> np.ndarray:
    """The array a LiteralProto holds."""
    shape = Shape.from_proto(proto.shape)
    if not shape.is_array:
        raise ModuleError(f"a constant of shape {shape} holds no array")
    kind = shape.element_type
    if kind in _REPEATED:
        flat = np.array(getattr(proto, _REPEATED[kind]), dtype=shape.dtype)
    elif kind in _COMPLEX:
        field, real = _COMPLEX[kind]
        flat = np.array(getattr(proto, field), dtype=real).view(shape.dtype)
    else:
        flat = _from_bytes(getattr(proto, f"{kind}s"), shape)
    return flat.reshape(shape.dims)


def read_literals(proto: Any) -> list[np.ndarray]:
    """The arrays a LiteralProto holds, in order: several where it is a tuple's."""
    if not Shape.from_proto(proto.shape).is_tuple:
        return [read_literal(proto)]
    return [array for part in proto.tuple_literals for array in read_literals(part)]


def _from_bytes(raw: bytes, shape: Shape) -> np.ndarray:
    data = np.frombuffer(raw, dtype=np.uint8)
    bits = _SUB_BYTE.get(shape.element_type)
    if bits is None:
        return data.view(shape.dtype)
    # One byte per element, its value in the low bits, as ml_dtypes keeps it.
    return (data & ((1 << bits) - 1)).astype(np.uint8).view(shape.dtype)


def write_literal(array: np.ndarray) -> Any:
    """A LiteralProto of `array`."""
    shape = Shape.from_dtype(array.dtype, array.shape)
    flat = np.ascontiguousarray(array).reshape(-1)
    out, kind = wire.LiteralProto(), shape.element_type
    out.shape.CopyFrom(shape.proto)
    if kind in _REPEATED:
        getattr(out, _REPEATED[kind]).extend(flat.tolist())
    elif kind in _COMPLEX:
        field, real = _COMPLEX[kind]
        getattr(out, field).extend(flat.view(real).tolist())
    else:
        setattr(out, f"{kind}s", _to_bytes(flat, kind))
    return out


def _to_bytes(flat: np.ndarray, kind: str) -> bytes:
    bits = _SUB_BYTE.get(kind)
    return flat.tobytes() if bits is None else (flat.view(np.uint8) & ((1 << bits) - 1)).tobytes()
