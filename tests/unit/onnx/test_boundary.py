"""Python's numbers as inputs: of the type that the model states, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

import hlosharding as hs
from hlosharding.onnx.boundary import Ports
from tests.support.onnx_models import INT64, model, node, port

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


def test_an_open_size_is_asked_for_in_the_type_of_its_input() -> None:
    proto = model([node("Neg", ["ids"], ["y"])], [port("ids", ["batch"], INT64)], [port("y", None, INT64)])
    with pytest.raises(hs.LoadError, match=r"--input ids=s64\[\.\.\.\]"):
        hs.load(proto)


def test_one_size_that_was_given_twice_is_blamed_on_who_gave_it() -> None:
    inputs = [port("a", ["batch", 4]), port("b", ["batch", 4])]
    proto = model([node("Add", ["a", "b"], ["y"])], inputs, [port("y", None)])
    given = {name: np.ones((rows, 4), np.float32) for name, rows in (("a", 2), ("b", 3))}
    with pytest.raises(hs.LoadError, match="give one size: the model's 'batch' is 2 in input 'a' and 3 in 'b'"):
        hs.load(proto, inputs=given)
    # Nothing is refused that can be computed: ONNX Runtime takes it, too.
    assert str(hs.load(proto, inputs=given | {"a": np.ones((1, 4), np.float32)}).entry.root.shape) == "f32[3,4]"
