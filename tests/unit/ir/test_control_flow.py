"""The parts of loops and conditionals, and who calls whom."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import hlosharding as hs
from hlosharding import load, wire, xla_bridge
from hlosharding.errors import ModuleError
from hlosharding.ir import ElementReaders, Instruction, Module, Shape, arguments, branches, callers, verify, while_parts

LOOP = """HloModule m
going {{ p = {carry} parameter(0)  {going} }}
step {{ p = {carry} parameter(0)  {step} }}
ENTRY e {{ x = {carry} parameter(0)  ROOT w = {carry} while(x), {named} }}"""
COUNT = {
    "carry": "s32[]",
    "going": "c = s32[] constant(3)  ROOT r = pred[] compare(p, c), direction=LT",
    "step": "c = s32[] constant(1)  ROOT r = s32[] add(p, c)",
}
TRUTH = {"carry": "pred[]", "going": "ROOT r = pred[] copy(p)", "step": "ROOT r = pred[] not(p)"}


@pytest.mark.parametrize("loop", [COUNT, TRUTH], ids=["a count", "a carry that looks like a condition"])
@pytest.mark.parametrize("named", ["condition=going, body=step", "body=step, condition=going"])
def test_the_body_comes_first_however_the_text_names_them(loop: dict[str, str], named: str) -> None:
    parts = while_parts(load(LOOP.format(**loop, named=named)).by_name("w"))
    assert (parts.body.name, parts.condition.name) == ("step", "going")


def _turned() -> bytes:
    proto = wire.HloModuleProto.FromString(
        load(LOOP.format(**COUNT, named="condition=going, body=step")).to_hlo_proto()
    )
    for computation in proto.computations:
        for inst in computation.instructions:
            if inst.opcode == "while":
                inst.called_computation_ids[:] = inst.called_computation_ids[::-1]
    return proto.SerializeToString()


def test_xla_reads_a_turned_proto_as_a_turned_loop() -> None:
    assert "condition=%step, body=%going" in xla_bridge.hlo_proto_to_text(_turned())


def test_a_turned_proto_is_refused() -> None:
    with pytest.raises(ModuleError, match=r"%going makes pred\[\]; at %w"):
        verify(Module.from_proto(_turned()))


CALLS = """HloModule m
f { p = s32[] parameter(0)  q = s32[] parameter(1)  ROOT r = s32[] subtract(p, q) }
g { u = s32[] parameter(0)  ROOT v = s32[] negate(u) }
ENTRY e {
  i = s32[] parameter(0)
  x = s32[] parameter(1)
  y = s32[] call(i, x), to_apply=f
  z = s32[] call(x, y), to_apply=f
  ROOT c = s32[] conditional(i, x, y, z), branch_computations={g, g, g}
}"""


def test_call_sites_stand_once_in_module_order() -> None:
    sites = {callee.name: [site.name for site in found] for callee, found in callers(load(CALLS)).items()}
    assert sites == {"f": ["y", "z"], "g": ["c"]}


def test_arguments_are_those_of_the_branches_that_run_the_computation() -> None:
    module = load(CALLS)
    conditional = module.by_name("c")
    assert [branch.operand.name for branch in branches(conditional)] == ["x", "y", "z"]
    assert [a.name for a in arguments(conditional, module.by_name("u"))] == ["x", "y", "z"]
    assert [a.name for a in arguments(module.by_name("z"), module.by_name("q"))] == ["y"]
    assert arguments(module.by_name("x"), module.by_name("q")) == ()


def test_a_loop_gives_its_carry_and_what_the_body_makes() -> None:
    module = load(LOOP.format(**COUNT, named="condition=going, body=step"))
    parts = while_parts(module.by_name("w"))
    for part in parts:
        given = arguments(module.by_name("w"), part.parameters[0])
        assert given == (module.by_name("x"), parts.body.root)


def test_what_runs_for_the_parts_is_what_xla_runs() -> None:
    module = load(LOOP.format(**COUNT, named="body=step, condition=going"))
    [[result]] = xla_bridge.run_proto(module.to_hlo_proto(), [[np.int32(0)]])
    assert result == 3


# ---- who reads the elements of a tuple: looked up once, however many ask


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
