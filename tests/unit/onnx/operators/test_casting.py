"""Casts from and to all types, known beforehand and traced, against ONNX's own evaluator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import hlosharding as hs
from tests.support.onnx_models import model, node, port, run
from tests.support.program_check import wide

WITHOUT_FORM = TensorProto.UNDEFINED, TensorProto.STRING, TensorProto.FLOAT6E2M3, TensorProto.FLOAT6E3M2
WITHOUT_CAST = TensorProto.COMPLEX64, TensorProto.COMPLEX128
TYPES = [t for t in TensorProto.DataType.values() if t not in (*WITHOUT_FORM, *WITHOUT_CAST)]


class Cast(NamedTuple):
    source: int
    target: int
    result: np.ndarray

    @property
    def name(self) -> str:
        return f"y{self.source}_{self.target}"


def given(element: int) -> np.ndarray:
    return np.array([1, 0, 1], np.float32).astype(helper.tensor_dtype_to_np_dtype(element))


def casts() -> Iterator[Cast]:
    """Of each type into four others, and between each and the type of scales; those that the evaluator can compute."""
    scale = TensorProto.FLOAT8E8M0
    for number, source in enumerate(TYPES):
        following = {(TYPES * 2)[number + further] for further in (1, 2, 5, 9)}
        for target in TYPES if source == scale else sorted(following | {scale}):
            call = node("Cast", ["x"], ["y"], to=target)
            try:
                [result] = ReferenceEvaluator(call).run(None, {"x": given(source)})
            except TypeError:
                continue
            yield Cast(source, target, np.asarray(result))


@pytest.mark.parametrize("is_known", [False, True], ids=["traced", "known"])
def test_casts_are_the_evaluators(is_known: bool) -> None:
    found = list(casts())
    calls = [node("Cast", [f"x{cast.source}"], [cast.name], to=cast.target) for cast in found]
    values = {f"x{source}": given(source) for source in TYPES}
    constants = [node("Constant", [], [n], value=numpy_helper.from_array(v)) for n, v in values.items()]
    inputs = [port(f"x{source}", [3], source) for source in TYPES]
    outputs = [port(cast.name, [3], cast.target) for cast in found]
    options: Any = {"opset": 28, "ir_version": 13}
    if is_known:
        results = run(model([*constants, *calls], [], outputs, **options))
    else:
        results = run(model(calls, inputs, outputs, **options), **values)
    assert len(found) > 5 * len(TYPES)
    wrong = [cast for cast, got in zip(found, results, strict=True) if not is_same(got, cast.result)]
    assert not wrong


def is_same(got: np.ndarray, want: np.ndarray) -> bool:
    return got.dtype == want.dtype and np.array_equal(wide(got), wide(want), equal_nan=True)


def test_bits_are_cast_to_as_many() -> None:
    call = node("BitCast", ["x"], ["y"], to=TensorProto.UINT2)
    outputs = [port("y", [4], TensorProto.UINT2)]
    with pytest.raises(hs.LoadError, match="uint8 has 8 bits, and uint2 2"):
        hs.load(model([call], [port("x", [4], TensorProto.UINT8)], outputs, opset=28, ir_version=13))


def test_an_identity_of_scales_has_their_smallest_beside_its_ones() -> None:
    call = node("EyeLike", ["x"], ["y"], dtype=TensorProto.FLOAT8E8M0)
    proto = model([call], [port("x", [2, 2])], [port("y", [2, 2], TensorProto.FLOAT8E8M0)], opset=28, ir_version=13)
    [found] = run(proto, x=np.zeros((2, 2), np.float32))
    assert wide(found).tolist() == [[1, 2.0**-127], [2.0**-127, 1]]
