"""Python stacks of a module: frames are a stranger's table, which may hold anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hlosharding as hs
from hlosharding import wire

TEXT = """HloModule m

FileNames
1 "inner.py"
2 "outer.py"

FunctionNames
1 "f"
2 "g"

FileLocations
1 {file_name_id=1 function_name_id=1 line=3 end_line=3 column=1 end_column=2}
2 {file_name_id=2 function_name_id=2 line=4 end_line=4 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}

f {
  x = f32[4] parameter(0)
  ROOT s = f32[4] sine(x), metadata={op_name="s" stack_frame_id=1}
}

ENTRY e {
  p = f32[4] parameter(0)
  ROOT c = f32[4] call(p), to_apply=f, metadata={op_name="c" stack_frame_id=2}
}
"""


def _with_table(damage: Callable[[Any], None]) -> bytes:
    """The program in which frame 1 is called by none, frame 2 by frame 1, but for the damage."""
    proto = wire.HloModuleProto.FromString(hs.load(TEXT, prepare=False).to_hlo_proto())
    damage(proto.stack_frame_index)
    return proto.SerializeToString()


@pytest.mark.parametrize("parents", [(1, 0), (0, 2), (1, 2), (2, 1), (2, 0)])
def test_frames_that_call_themselves_stand_once(parents: tuple[int, int]) -> None:
    def set_parents(table: Any) -> None:
        for frame, parent in zip(table.stack_frames, parents, strict=True):
            frame.parent_frame_id = parent

    data = _with_table(set_parents)
    module = hs.load(data, prepare=False)
    assert (module.by_name("s").location, module.by_name("c").location) == ("inner.py:3", "outer.py:4")
    inlined = hs.load(data, prepare=True).entry.root
    assert [frame.function for frame in inlined.frames] == ["f", "g"]


def test_a_deep_stack_is_followed() -> None:
    def deepen(table: Any) -> None:
        for parent in range(2, 3000):
            table.stack_frames.add(file_location_id=1, parent_frame_id=parent)

    assert len(hs.load(_with_table(deepen)).frames(3000)) == 3000


def _location(table: Any) -> None:
    table.stack_frames[0].file_location_id = 9


def _file(table: Any) -> None:
    table.file_locations[0].file_name_id = 0


def _function(table: Any) -> None:
    table.file_locations[0].function_name_id = 9


@pytest.mark.parametrize("damage", [_location, _file, _function])
def test_without_its_place_a_stack_is_unknown_as_it_is_to_xla(damage: Callable[[Any], None]) -> None:
    module = hs.load(_with_table(damage), prepare=False)
    assert "stack_frame_id" not in module.to_hlo_text(metadata=True)  # XLA's own writing
    assert not module.by_name("s").frames
    assert not module.by_name("c").frames
