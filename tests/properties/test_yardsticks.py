"""The second opinions of XLA's one-device run: they compute the same, but for what they are for."""

from __future__ import annotations

import numpy as np

import hlosharding as hs
from tests.support.program_check import one_device
from tests.support.yardsticks import kept_apart, widened

CUT_TWICE = """HloModule m
ENTRY e {
  x = f32[8] parameter(0)
  two = s32[] constant(2)
  back = s32[] parameter(1)
  once = f32[5] dynamic-slice(x, two), dynamic_slice_sizes={5}
  ROOT twice = f32[3] dynamic-slice(once, back), dynamic_slice_sizes={3}
}"""


def test_a_start_out_of_range_is_clamped_where_the_ops_are_kept_apart() -> None:
    module = hs.load(CUT_TWICE, format="hlo")
    [found] = one_device(kept_apart(module), [np.arange(8, dtype=np.float32), np.int32(-1)])
    np.testing.assert_array_equal(found, [2, 3, 4])


def test_wider_floats_keep_what_narrow_ones_lose() -> None:
    text = "HloModule m\nENTRY e {\n  x = f32[] parameter(0)\n  ROOT y = f32[] multiply(x, x)\n}"
    x = np.float32(1.1)
    [found] = one_device(widened(hs.load(text, format="hlo")), [x.astype(np.float64)])
    assert found.dtype == np.float64
    assert found == float(x) * float(x)
