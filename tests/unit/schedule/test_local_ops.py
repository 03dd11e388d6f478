"""Steps that move nothing between devices."""

from __future__ import annotations

import pytest

from hlosharding.errors import ScheduleError
from hlosharding.schedule import parse_schedule


def test_tiles_of_several_sizes_are_not_joined() -> None:
    text = """
    func @main(%x: f32[3] on {0,1} as {devices=[2]<=[2]}, %y: f32[3] on {0,1} as {devices=[2]<=[2]}) {
      %z = concat(%x, %y) dim=0
      return %z
    }"""
    with pytest.raises(ScheduleError, match="tiles of several sizes along dim 0"):
        parse_schedule(text)
