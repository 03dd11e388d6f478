"""Shapes are interned values that read and print as XLA's."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

from hlosharding.errors import ModuleError
from hlosharding.ir import Shape


@pytest.mark.parametrize(
    "text", ["f32[2,3]", "pred[]", "(f32[2], (s32[], bf16[4,4]))", "token[]", "f32[<=8,3]", "()", "c64[0]"]
)
def test_text_round_trip(text: str) -> None:
    assert str(Shape.parse(text)) == text


def test_equal_shapes_are_one_object() -> None:
    assert Shape.parse("f32[2,3]{0,1}") is Shape.array("f32", (2, 3))
    assert pickle.loads(pickle.dumps(Shape.parse("(f32[2], s32[])"))) is Shape.parse("(f32[2], s32[])")


def test_proto_round_trip() -> None:
    for text in ("f32[2,3]", "(f32[2], (s32[], bf16[4,4]))", "f32[<=8,3]", "token[]"):
        shape = Shape.parse(text)
        assert Shape.from_proto(shape.proto) is shape


@pytest.mark.parametrize(
    ("text", "nbytes"), [("f32[2,3]", 24), ("s4[3]", 2), ("pred[5]", 5), ("(f64[2], c128[1])", 32), ("token[]", 0)]
)
def test_bytes(text: str, nbytes: int) -> None:
    assert Shape.parse(text).byte_size == nbytes


@pytest.mark.parametrize(
    "dtype", [np.float32, np.int8, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, np.complex64]
)
def test_numpy_types_go_both_ways(dtype: type) -> None:
    assert Shape.from_dtype(dtype, (2,)).dtype == np.dtype(dtype)


def test_leaves_are_in_order_and_an_empty_tuple_has_none() -> None:
    assert [str(leaf) for leaf in Shape.parse("(f32[2], (s32[], bf16[4]))").leaves] == ["f32[2]", "s32[]", "bf16[4]"]
    assert Shape.parse("()").leaves == ()


@pytest.mark.parametrize("text", ["f33[2]", "f32", "f32[2", "", "(f32[2], x)"])
def test_what_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(ModuleError, match="no shape"):
        Shape.parse(text)


def test_a_text_nested_too_deep_is_refused() -> None:
    assert str(Shape.parse("(" * 90 + "f32[]" + ")" * 90)).count("(") == 90
    for deep in ("(" * 3000 + ")" * 3000, "(f32[], " * 3000 + ")" * 3000):
        with pytest.raises(ModuleError, match="nested more than 100"):
            Shape.parse(deep)


def test_sizes_that_numpy_computed_do_not_wrap_around() -> None:
    sizes = tuple(np.array([3_000_017, 3_000_019], np.int32))
    assert Shape.array("f32", sizes).byte_size == 4 * 3_000_017 * 3_000_019
