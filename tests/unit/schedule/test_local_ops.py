"""Steps that move nothing between devices."""

from __future__ import annotations

import pytest

from hlosharding.errors import ScheduleError
from hlosharding.schedule import UserOp, parse_schedule


def test_tiles_of_several_sizes_are_not_joined() -> None:
    text = """
    func @main(%x: f32[3] on {0,1} as {devices=[2]<=[2]}, %y: f32[3] on {0,1} as {devices=[2]<=[2]}) {
      %z = concat(%x, %y) dim=0
      return %z
    }"""
    with pytest.raises(ScheduleError, match="tiles of several sizes along dim 0"):
        parse_schedule(text)


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
    with pytest.raises(ScheduleError, match="no piece 2 of 2 on 1 devices"):
        parse_schedule("func @main() {\n %n = number() piece=2 parts=2 axis=micro to={0}\n return %n\n}")
