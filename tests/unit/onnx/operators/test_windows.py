"""Expected numbers were counted by hand, or with the elements of each window written out."""

from __future__ import annotations

import numpy as np
import pytest

from hlosharding.errors import LoadError
from hlosharding.onnx.operators.windows import window_over
from tests.support.onnx_node import run_node


@pytest.mark.parametrize(
    ("attributes", "counts", "padding"),
    [
        ({}, (6,), ((0, 0),)),
        ({"strides": [2]}, (3,), ((0, -1),)),
        ({"strides": [2], "ceil_mode": 1}, (4,), ((0, 1),)),
        ({"dilations": [3]}, (2,), ((0, 0),)),
        ({"pads": [1, 2], "strides": [4]}, (3,), ((1, 2),)),
        # 8 elements under windows of 7, four apart: two of them reach over 11.
        ({"auto_pad": "SAME_LOWER", "strides": [4], "dilations": [3]}, (2,), ((2, 1),)),
        ({"auto_pad": "SAME_UPPER", "strides": [4], "dilations": [3]}, (2,), ((1, 2),)),
        ({"auto_pad": "VALID", "pads": [1, 1], "strides": [3]}, (2,), ((0, -2),)),
        # A third window would start behind the image.
        ({"pads": [0, 2], "strides": [4], "ceil_mode": 1}, (2,), ((0, -1),)),
    ],
)
def test_windows_of_three_over_eight(attributes, counts, padding) -> None:
    window = window_over((8,), (3,), **attributes)
    assert (window.counts, window.padding) == (counts, padding)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"pads": [1]}, "1 pads"),
        ({"strides": [0]}, "strides"),
        ({"dilations": [1, 1]}, "dilations"),
        ({"auto_pad": "SAME"}, "auto_pad 'SAME'"),
        ({"dilations": [4]}, "a window of 9"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(attributes, message) -> None:
    with pytest.raises(LoadError, match=message):
        window_over((8,), (3,), **attributes)


def test_a_dilated_convolution_with_automatic_padding() -> None:
    x, w = np.arange(8, dtype=np.float32).reshape(1, 1, 8), np.float32([[[1, 10, 100]]])
    [found] = run_node("Conv", x, w, auto_pad="SAME_LOWER", dilations=[3], strides=[4])
    # Windows at -2, 1, 4 and at 2, 5, 8, where places outside hold nothing.
    assert found.tolist() == [[[0 + 10 * 1 + 100 * 4, 2 + 10 * 5]]]


def test_an_average_leaves_out_what_was_added_by_rounding_up() -> None:
    x = np.float32([[[1, 2, 3, 4, 5]]])
    attributes = {"kernel_shape": [3], "strides": [3], "pads": [1, 0], "ceil_mode": 1}
    [without] = run_node("AveragePool", x, **attributes)
    [counted] = run_node("AveragePool", x, count_include_pad=1, **attributes)
    assert without.tolist() == [[[1.5, 4.0]]]
    assert counted.tolist() == [[[1.0, 4.0]]]
