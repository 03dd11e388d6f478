"""Constants of every element type survive the wire; the live XLA agrees on what they hold."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hlosharding.errors import ModuleError
from hlosharding.ir import Builder, Module, Shape
from hlosharding.ir.literal import read_literal, write_literal
from hlosharding.xla_bridge import run_proto

NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "int4", "uint4")
ALL = [np.dtype(n) for n in (*NUMBERS, "bool", "complex64", "complex128")] + [
    np.dtype(getattr(ml_dtypes, n)) for n in NARROW
]


def constant(array: np.ndarray) -> Module:
    builder = Builder("m")
    main = builder.computation("main")
    main.constant(array)
    return builder.finish(main)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_round_trip(dtype: np.dtype) -> None:
    array = np.array([[1, 0, 3], [2, 1, 5]]).astype(dtype)
    assert (read_literal(write_literal(array)) == array).all()


@pytest.mark.parametrize("dtype", [d for d in ALL if d.itemsize <= 4], ids=str)
def test_xla_reads_what_we_write(dtype: np.dtype) -> None:
    array = np.array([1, 0, 3, 2, 5]).astype(dtype)
    [[found]] = run_proto(constant(array).to_hlo_proto(), [])
    assert found.dtype == dtype
    assert (found == array).all()


def test_signs_and_infinities() -> None:
    array = np.array([-1.5, np.inf, -np.inf, -0.0], np.float32)
    assert read_literal(write_literal(array)).tobytes() == array.tobytes()
    four_bits = np.array([-8, 7, -1]).astype(ml_dtypes.int4)
    assert (read_literal(write_literal(four_bits)) == four_bits).all()


def test_a_tuple_is_no_array() -> None:
    proto = write_literal(np.zeros(1, np.float32))
    proto.shape.CopyFrom(Shape.parse("(f32[1], f32[1])").proto)
    with pytest.raises(ModuleError, match="holds no array"):
        read_literal(proto)
