from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hlosharding.errors import LoadError
from tests.support.onnx_node import run_node


def test_blocks_that_do_not_fill_the_last_one() -> None:
    x = np.float32([[2, 4, 6, 8, 10]])
    [small] = run_node("QuantizeLinear", x, np.float32([[2, 1]]), np.int8([[0, 1]]), axis=1, block_size=3)
    assert small.tolist() == [[1, 2, 3, 9, 11]]
    [back] = run_node("DequantizeLinear", small, np.float32([[2, 1]]), np.int8([[0, 1]]), axis=1, block_size=3)
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.int2, ml_dtypes.uint2, np.int16])
def test_narrow_types_are_filled_to_their_limits(dtype) -> None:
    info = ml_dtypes.iinfo(dtype)
    [found] = run_node("QuantizeLinear", np.float32([-1e6, 0.5, 1.5, 1e6]), np.float32(1), np.zeros((), dtype))
    assert found.dtype == dtype
    # Halves go to the even number; what 2 is for int2 is its largest.
    assert found.astype(int).tolist() == [int(info.min), 0, min(2, int(info.max)), int(info.max)]


def test_large_whole_numbers_keep_their_low_digits() -> None:
    # In float32, 2**24 + 1 is no number: the zero point is taken off first.
    [found] = run_node("DequantizeLinear", np.int32([2**24 + 3]), np.float32(0.5), np.int32(2**24))
    assert found.tolist() == [1.5]


def test_types_that_contradict_each_other_are_refused() -> None:
    from onnx import TensorProto

    with pytest.raises(LoadError):
        run_node("QuantizeLinear", np.float32([1]), np.float32(1), np.int8(0), output_dtype=TensorProto.UINT8)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_packed_weights_are_unpacked_lowest_bits_first(bits) -> None:
    count = 32
    numbers = np.random.default_rng(bits).integers(0, 2**bits, (3, count))
    packed = np.zeros((3, 1, count * bits // 8), np.uint8)
    for place in range(count):
        byte, shift = divmod(place * bits, 8)
        packed[:, 0, byte] |= (numbers[:, place] << shift).astype(np.uint8)
    scales = np.float32([0.5, 1, 2])
    [found] = run_node(
        "MatMulNBits", np.eye(count, dtype=np.float32), packed, scales, domain="com.microsoft",
        K=count, N=3, bits=bits, block_size=32,
    )  # fmt: skip
    np.testing.assert_array_equal(found, ((numbers - 2 ** (bits - 1)) * scales[:, None]).T)
