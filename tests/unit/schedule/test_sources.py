"""Constants and numbers of pieces: written as they are read, made by each device, refused where they are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlosharding.errors import HloShardingError, ScheduleError
from hlosharding.ir import Shape
from hlosharding.schedule import UserOp, parse_schedule
from hlosharding.schedule.sources import Constant
from hlosharding.schedule.spelling import attributes_text, parse_op

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
    [found] = parse_op("constant", attributes_text(made)).meaning([], [])
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


def test_numbers_of_pieces_are_values() -> None:
    text = """
    func @main(%x: u32[4] on {0}) {
      %a, %b = split(%x) dim=0 parts=2 axis=micro
      %m = number() piece=0 parts=2 axis=micro to={0}
      %n = number() piece=1 parts=2 axis=micro to={0} : u32[] on {0}, piece 1/2 of micro
      %c = @plus(%a, %m)
      %d = @plus(%b, %n)
      %y = concat(%c, %d) dim=0
      return %y
    }"""
    plus = {"plus": UserOp("plus", lambda x, _: x, lambda x, n: x + n)}
    again = parse_schedule(str(parse_schedule(text, plus)), plus)
    [made] = again.run_reference([0, 0, 0, 0])
    assert made.tolist() == [0, 0, 1, 1]


def test_a_number_beyond_the_pieces_is_refused() -> None:
    with pytest.raises(ScheduleError, match="no piece 2 of 2; at line 2"):
        parse_schedule("func @main() {\n %n = number() piece=2 parts=2 axis=micro to={0}\n return %n\n}")
