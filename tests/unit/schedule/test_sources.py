"""Constants: written as they are read, made by each device, refused where they are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlosharding.errors import HloShardingError
from hlosharding.ir import Shape
from hlosharding.schedule import parse_schedule
from hlosharding.schedule.sources import Constant
from hlosharding.schedule.spelling import attributes_text, built_in

VALUES: dict[str, Any] = {
    "scalar": np.int32(-3),
    "row": np.array([0, 255], np.uint8),
    "matrix": np.arange(6, dtype=np.int32).reshape(2, 3),
    "nothing": np.zeros((0, 4), np.float32),
    "floats": np.array([0.1, -1e-30, 3e38, np.inf, -np.inf, np.nan], np.float32),
    "booleans": np.array([True, False]),
    "bfloat16": np.array([1.5, -2.0], Shape.array("bf16").dtype),
    "small": np.array([-8, 7], Shape.array("s4").dtype),
}


@pytest.mark.parametrize("name", VALUES)
def test_printed_and_read_again_it_has_the_same_elements(name: str) -> None:
    made = Constant.of(VALUES[name], (0,))
    [found] = built_in("constant", attributes_text(made)).meaning([], [])
    assert found.dtype == VALUES[name].dtype
    np.testing.assert_array_equal(found, VALUES[name])


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ("value=2 shape=s32[2] to={0}", "1 elements for s32[2]"),
        ("value={} shape=s32[] to={0}", "0 elements for s32[]"),
        ("value={1,2} shape=s32[999999999] to={0}", "2 elements for s32[999999999]"),
        ("value=300 shape=u8[] to={0}", "no elements of u8[]"),
        ("value=-1 shape=u32[] to={0}", "no elements of u32[]"),
        ("value=8 shape=s4[] to={0}", "no elements of s4[]"),
        ("value=1.5 shape=s32[] to={0}", "no elements of s32[]"),
        ("value=1e39 shape=f32[] to={0}", "no elements of f32[]"),
        ("value=2 shape=pred[] to={0}", "no elements of pred[]"),
        ("value=x shape=f32[] to={0}", "no elements of f32[]"),
        ("value=2 shape=token[] to={0}", "token"),
        ("value=2 shape=s32 to={0}", "s32"),
        ("value=2 to={0}", "lacks shape="),
        ("value=2 shape=s32[] to={}", "no devices"),
    ],
)
def test_what_is_no_constant_is_refused_with_its_line(attributes: str, says: str) -> None:
    with pytest.raises(HloShardingError) as refused:
        parse_schedule(f"func @main() {{\n  %c = constant() {attributes}\n  return %c\n}}")
    assert says in str(refused.value)
    assert "line 2" in str(refused.value)


def test_each_device_has_it() -> None:
    schedule = parse_schedule("""func @main() {
      %c = constant() value={1,2} shape=f32[2] to={0-1}
      %d = send(%c) to={2-3}
      return %c, %d
    }""")
    for found in (*schedule.run_reference(), *schedule.compile()()):
        np.testing.assert_array_equal(np.asarray(found), np.array([1, 2]))
    assert schedule.devices == (0, 1, 2, 3)
