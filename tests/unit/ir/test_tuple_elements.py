"""Who reads the elements of a tuple: looked up once, however many ask."""

from __future__ import annotations

from collections.abc import Iterator

import hlosharding as hs
from hlosharding.ir import ElementReaders, Instruction, Shape

MODULE = """HloModule m
ENTRY e {
  p = (f32[8], f32[8], s32[]) parameter(0)
  x = f32[8] get-tuple-element(p), index=0
  y = f32[8] get-tuple-element(p), index=1
  z = f32[8] get-tuple-element(p), index=1
  t = (f32[8], f32[8], f32[8]) tuple(x, y, z)
  u = f32[8] get-tuple-element(t), index=2
  ROOT r = ((f32[8], f32[8], f32[8]), f32[8]) tuple(t, u)
}"""


class Counted(list[Instruction]):
    """A list that says how often it was walked."""

    walks = 0

    def __iter__(self) -> Iterator[Instruction]:
        self.walks += 1
        return super().__iter__()


def test_an_element_has_one_reader_where_one_takes_it_and_nobody_the_whole() -> None:
    module = hs.load(MODULE)
    readers = ElementReaders()
    is_only = {name: readers.is_only(module.by_name(name)) for name in ("x", "y", "z", "u")}
    assert is_only == {"x": True, "y": False, "z": False, "u": False}
    assert readers.is_whole(module.by_name("t"))
    assert readers.of(module.by_name("p"), 2) == []


def test_a_tuples_readers_are_walked_through_once() -> None:
    module = hs.load(MODULE)
    packed = module.by_name("p")
    packed.users = users = Counted(packed.users)
    readers = ElementReaders()
    for index in range(1000):
        readers.of(packed, index % 3)
        readers.is_only(module.by_name("x"))
    assert users.walks == 1


def test_first_leaves_count_what_stands_before() -> None:
    assert Shape.parse("(f32[], (), (s32[2], (pred[])))").first_leaves == (0, 1, 1, 3)
    assert Shape.parse("()").first_leaves == (0,)
