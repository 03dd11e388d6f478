"""A part of a program: ids and names stay, and everything else that is kept."""

from __future__ import annotations

import hlosharding as hs
from hlosharding.ir import Instruction, Shape, excerpt

TEXT = """HloModule m
unused { p = f32[] parameter(0)  ROOT n = f32[] negate(p) }
sum { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[4] parameter(0)
  zero = f32[] constant(0)
  y = f32[4] tanh(x)
  z = f32[4] sine(y)
  r = f32[] reduce(z, zero), dimensions={0}, to_apply=sum
  c = f32[] call(r), to_apply=unused
  ROOT t = (f32[4], f32[], f32[]) tuple(z, r, c)
}"""


def test_what_stays_is_as_it_was() -> None:
    module = hs.load(TEXT)
    of = module.by_name
    operands = {
        of("x"): [],
        of("zero"): [],
        of("z"): [of("x")],
        of("r"): list(of("r").operands),
        of("t"): [of("z"), of("r")],
    }

    def users(inst: Instruction) -> list[Instruction]:
        return [user for user, used in operands.items() if inst in used]

    root_shape = Shape.tuple((Shape.parse("f32[4]"), Shape.parse("f32[]")))
    part, new = excerpt(module, operands, users, [0, 1])
    assert [i.name for i in part.entry.instructions] == ["x", "zero", "z", "r", "t"]
    assert all(new[i].id == i.id and new[i].proto is i.proto for i in operands)
    assert new[of("z")].operands == (new[of("x")],)
    assert new[of("z")].users == [new[of("r")], new[of("t")]]
    assert part.entry.root.shape == root_shape
    assert [c.name for c in part.computations] == [of("r").called[0].name, module.entry.name]
    assert of("z").operands == (of("y"),), "the whole program is left alone"
