"""Convolutions at which XLA itself ends the process: as we write them they run."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from jax import lax

import hlosharding as hs

DIMS = lax.ConvDimensionNumbers((3, 0, 1, 2), (3, 0, 1, 2), (2, 3, 0, 1))


@pytest.mark.parametrize(("rows", "dilation"), [(3, 2), (5, 2), (4, 3)])
def test_a_dim_that_xla_takes_for_groups_when_it_swaps_input_and_kernel(rows: int, dilation: int) -> None:
    """A kernel as long as the input is dilated, one less the stride, no padding; judged by one row more, cut off."""

    def convolve(x: jax.Array, kernel: jax.Array, more: int) -> jax.Array:
        stride, padding, spread = (dilation - 1, 1), ((0, more), (2, 2)), (dilation, 1)
        return lax.conv_general_dilated(x, kernel, stride, padding, spread, (1, 1), DIMS)

    x = np.linspace(-1, 1, 3 * rows * 10 * 6, dtype=np.float32).reshape(3, rows, 10, 6)
    kernel = np.linspace(-2, 1, 3 * dilation * 12 * 5, dtype=np.float32).reshape(3, dilation, 12, 5)
    found = np.asarray(hs.partition(hs.trace(partial(convolve, more=0))(x, kernel)).run(x, kernel))
    wanted = np.asarray(jax.jit(partial(convolve, more=dilation - 1))(x, kernel))
    assert found.shape[0] == wanted.shape[0] - 1
    assert found == pytest.approx(wanted[:-1], rel=1e-5)
