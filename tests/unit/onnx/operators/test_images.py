"""RoiAlign and MaxRoiPool against ONNX's evaluator and against each region computed by itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import hlosharding as hs
from hlosharding.errors import LoadError
from tests.support.onnx_node import node_model, run_node

_RNG = np.random.default_rng(0)
_IMAGES = _RNG.standard_normal((2, 3, 9, 10)).astype(np.float32)
_ROIS = np.float32([[0, 1, 6, 5], [2.5, 0.5, 4, 8], [1, 1, 1.2, 1.1], [-3, 2, 5, 12]])
_BATCH = np.int64([0, 1, 1, 0])


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("where", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("samples", [0, 2])
def test_regions_as_onnx_evaluates_them(mode, where, samples) -> None:
    attributes = {
        "mode": mode, "coordinate_transformation_mode": where, "sampling_ratio": samples, "output_height": 3,
        "output_width": 2, "spatial_scale": 0.9,
    }  # fmt: skip
    inputs = {"x0": _IMAGES, "x1": _ROIS, "x2": _BATCH}
    [expected] = ReferenceEvaluator(node_model("RoiAlign", inputs, 1, "", attributes)).run(None, inputs)
    [found] = run_node("RoiAlign", *inputs.values(), **attributes)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_regions_that_are_sampled_by_their_size_must_be_known() -> None:
    model = node_model("RoiAlign", {"x0": _IMAGES, "x1": _ROIS, "x2": _BATCH}, 1, "", {"sampling_ratio": 0})
    with pytest.raises(LoadError, match="x1"):
        hs.load(model)


def test_the_largest_of_each_part_of_a_region() -> None:
    [found] = run_node("MaxRoiPool", _IMAGES, np.c_[_BATCH, _ROIS].astype(np.float32), pooled_shape=[3, 2])
    for roi, batch, parts in zip(_ROIS, _BATCH, found, strict=True):
        x0, y0, x1, y1 = (math.copysign(math.floor(abs(r) + 0.5), r) for r in roi)
        height, width = max(y1 - y0 + 1, 1) / 3, max(x1 - x0 + 1, 1) / 2
        for row in range(3):
            for column in range(2):
                rows = [int(y0) + n for n in range(math.floor(row * height), math.ceil((row + 1) * height))]
                columns = [int(x0) + n for n in range(math.floor(column * width), math.ceil((column + 1) * width))]
                inside = np.ix_([r for r in rows if 0 <= r < 9], [c for c in columns if 0 <= c < 10])
                part = _IMAGES[batch][:, *inside]
                expected = part.max((1, 2)) if part.size else np.zeros(3, np.float32)
                np.testing.assert_array_equal(parts[:, row, column], expected)


def test_whole_numbers_are_rounded_after_resizing() -> None:
    x = np.uint8([[0, 255]])
    [found] = run_node("Resize", x, None, None, np.int64([1, 4]), mode="linear")
    # At -0.25, 0.25, 0.75 and 1.25 of the way.
    assert found.tolist() == [[0, 64, 191, 255]]


def test_a_nearest_element_between_two_rounded_scales() -> None:
    x = np.arange(5, dtype=np.float32)
    attributes = {"mode": "nearest", "nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"}
    [found] = run_node("Resize", x, None, np.float32([0.6]), **attributes)
    # The new elements lie at 0, 1.67 and 3.33.
    assert found.tolist() == [0, 1, 3]


@pytest.mark.parametrize(
    ("scales", "expected"),
    [([1.0, 2.0], [[1, 1, 2, 2, 3, 3, 4, 4]]), ([1.0, 0.6], [[1, 3]])],
)
def test_a_nearest_resize_of_opset_10(scales, expected) -> None:
    from onnx import TensorProto, helper, numpy_helper

    from tests.support.onnx_node import loaded_and_run

    node = helper.make_node("Resize", ["x", "s"], ["y"], mode="nearest")
    graph = helper.make_graph(
        [node], "old", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_empty_tensor_value_info("y")], [numpy_helper.from_array(np.float32(scales), "s")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)], ir_version=5)
    [found] = loaded_and_run(model, {"x": np.float32([[1, 2, 3, 4]])})
    assert found.tolist() == expected
