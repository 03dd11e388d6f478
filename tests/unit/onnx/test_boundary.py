"""Python's numbers as inputs: of the type that the model states, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

import hlosharding as hs
from hlosharding.onnx.boundary import Ports
from tests.support.onnx_models import port

BOUNDS = {
    "BOOL": (0, 1), "INT2": (-2, 1), "UINT4": (0, 15), "UINT8": (0, 255), "INT64": (-(2**63), 2**63 - 1),
    "UINT64": (0, 2**64 - 1), "FLOAT": (-(2**63), 1.5), "COMPLEX64": (-1, 0.1),
}  # fmt: skip


def bound(name: str, numbers: list[float]) -> np.ndarray:
    return Ports.of([port("n", None, TensorProto.DataType.Value(name))], {"n": numbers}).bound["n"]


@pytest.mark.parametrize("name", BOUNDS)
def test_numbers_within_the_bounds_of_their_type_are_taken(name: str) -> None:
    for number in (*BOUNDS[name], True):
        np.testing.assert_allclose(bound(name, [number]).tolist(), [number], rtol=1e-7)


@pytest.mark.parametrize("name", [name for name in BOUNDS if name not in ("FLOAT", "COMPLEX64")])
def test_numbers_that_a_type_of_whole_ones_has_not_are_refused(name: str) -> None:
    least, most = BOUNDS[name]
    for number in (least - 1, most + 1, 0.5, float("nan")):
        with pytest.raises(hs.LoadError, match=r"input 'n' is .*was given"):
            bound(name, [number])
