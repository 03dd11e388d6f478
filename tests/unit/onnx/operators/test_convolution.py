from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hlosharding.errors import LoadError
from tests.support.onnx_node import run_node


def _random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


@settings(max_examples=15)
@given(
    size=st.integers(4, 7), kernel=st.integers(1, 3), stride=st.integers(1, 3), dilation=st.integers(1, 2),
    low=st.integers(0, 2), high=st.integers(0, 2), group=st.sampled_from([1, 2]),
)  # fmt: skip
def test_a_transposed_convolution_is_the_adjoint_of_the_convolution(
    size, kernel, stride, dilation, low, high, group
) -> None:
    x, w = _random(2, 4, size), _random(6, 4 // group, kernel)
    attributes = {"strides": [stride], "dilations": [dilation], "pads": [low, high], "group": group}
    if size + low + high < (kernel - 1) * dilation + 1:
        return
    [forward] = run_node("Conv", x, w, **attributes)
    y = _random(*forward.shape, seed=1)
    left_over = (size + low + high - (kernel - 1) * dilation - 1) % stride
    [backward] = run_node("ConvTranspose", y, w, output_padding=[left_over], **attributes)
    assert backward.shape == x.shape
    np.testing.assert_allclose(np.vdot(forward, y), np.vdot(x, backward), rtol=1e-3, atol=1e-3)


def test_a_deformable_convolution_that_is_not_deformed() -> None:
    x, w, b = _random(2, 4, 6, 7), _random(6, 2, 3, 2), _random(6)
    attributes = {"group": 2, "strides": [2, 1], "dilations": [1, 2], "pads": [1, 0, 1, 1]}
    [plain] = run_node("Conv", x, w, b, **attributes)
    offset = np.zeros((2, 2 * 3 * 2 * 2, *plain.shape[2:]), np.float32)
    [found] = run_node("DeformConv", x, w, offset, b, offset_group=2, **attributes)
    np.testing.assert_allclose(found, plain, rtol=1e-5, atol=1e-5)


def test_a_deformable_convolution_shifted_by_half_an_element() -> None:
    x = np.float32([[[[1, 3, 7]]]])
    offset = np.zeros((1, 2, 1, 3), np.float32)
    offset[0, 1] = 0.5
    mask = np.full((1, 1, 1, 3), 2, np.float32)
    [found] = run_node("DeformConv", x, np.ones((1, 1, 1, 1), np.float32), offset, None, mask)
    assert found.tolist() == [[[[4.0, 10.0, 7.0]]]]


def test_a_kernel_of_another_shape_than_said_is_refused() -> None:
    with pytest.raises(LoadError, match=r"kernel_shape|contradicts"):
        run_node("Conv", _random(1, 1, 5), _random(1, 1, 3), kernel_shape=[2])


def test_zero_points_of_each_channel_are_taken_off_the_kernel() -> None:
    x, w = np.uint8([[[3, 4, 5]]]), np.uint8([[[10, 20]], [[30, 40]]])
    [found] = run_node("ConvInteger", x, w, np.uint8(3), np.uint8([10, 30]))
    # (0, 1, 2) with (0, 10) and with (0, 10).
    assert found.tolist() == [[[10, 20], [10, 20]]]
