from __future__ import annotations

import numpy as np
import pytest

import hlosharding as hs
from hlosharding.errors import LoadError
from hlosharding.onnx.operators import OPERATORS
from tests.support.onnx_node import node_model, run_node


def test_given_by_value_they_are_computed_beforehand() -> None:
    x = np.int64([[3, 0, 3], [0, 5, 0]])
    assert run_node("NonZero", x)[0].tolist() == [[0, 0, 1], [0, 2, 1]]
    assert [found.tolist() for found in run_node("Unique", x, outputs=4)] == [
        [0, 3, 5], [1, 0, 4], [1, 0, 1, 0, 2, 0], [3, 2, 1],
    ]  # fmt: skip


def test_elements_are_picked_of_a_tensor_that_is_not_known() -> None:
    import jax

    model = node_model("Compress", {"x0": np.zeros((2, 3), np.float32), "x1": np.zeros(3, bool)}, 1, "", {"axis": 1})
    by_shape = jax.ShapeDtypeStruct((2, 3), np.float32)
    module = hs.load(model, inputs={"x0": by_shape, "x1": np.array([True, False, True])})
    assert [p.shape.dims for p in module.entry.parameters] == [(2, 3)]
    assert module.entry.root.shape.dims == (2, 2)


@pytest.mark.parametrize("operator", ["NonZero", "Unique"])
def test_given_by_shape_the_input_is_named(operator) -> None:
    with pytest.raises(LoadError, match="depends on the value of input 'x0'"):
        hs.load(node_model(operator, {"x0": np.zeros((2, 3), np.float32)}, 1, "", {}))


def test_boxes_that_overlap_are_left_out() -> None:
    boxes = np.float32([[[0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]]])
    scores = np.float32([[[0.5, 0.9, 0.4]]])
    [found] = run_node("NonMaxSuppression", boxes, scores, np.int64(3), np.float32(0.5), np.float32(0))
    assert found.tolist() == [[0, 0, 1], [0, 0, 2]]


@pytest.mark.parametrize(
    "name", ["StringConcat", "StringSplit", "StringNormalizer", "RegexFullMatch", "TfIdfVectorizer", "ImageDecoder"]
)
def test_what_has_no_form_in_hlo_is_refused_with_a_reason(name) -> None:
    from onnx import defs

    operator = OPERATORS["", name]
    schema = defs.get_schema(name, 28)
    assert set(operator.attributes) == set(schema.attributes)
    required = {n: None for n, a in schema.attributes.items() if a.required}
    with pytest.raises(LoadError, match=r"HLO|size of the image"):
        operator.function(*[None] * len(operator.inputs), **required)
