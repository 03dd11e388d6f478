"""What happens before propagation, op by op; tests/oracle compares whole models with XLA's own pipeline."""

from __future__ import annotations

import pytest

from hlosharding.frontends import prepare
from hlosharding.frontends.hlo.text_and_proto import from_hlo_text, from_stablehlo
from hlosharding.ir import Module
from hlosharding.xla_bridge import hlo_proto_to_stablehlo


def prepared(text: str) -> Module:
    return prepare(from_hlo_text(text))


def lines(module: Module) -> list[str]:
    return [repr(i) for i in module.entry.instructions]


TWICE = """HloModule m
f { p = f32[4] parameter(0)  ROOT n = f32[4] negate(p) }
ENTRY e {
  x = f32[4] parameter(0)
  a = f32[4] call(x), to_apply=f
  b = f32[4] call(a), to_apply=f
  dead = f32[4] add(x, x)
  ROOT r = f32[4] add(a, b)
}"""


def test_a_callee_used_twice_becomes_two_copies_and_dead_code_goes() -> None:
    module = prepared(TWICE)
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "negate", "negate", "add"]
    assert len(module.computations) == 1


def test_the_given_module_is_not_changed() -> None:
    module = from_hlo_text(TWICE)
    before = module.to_hlo_text(metadata=True)
    prepare(module)
    assert module.to_hlo_text(metadata=True) == before


def test_without_calls_dead_code_stays_as_in_xla() -> None:
    module = prepared(
        "HloModule m\nENTRY e { x = f32[4] parameter(0)  d = f32[4] negate(x)  ROOT r = f32[4] add(x, x) }"
    )
    assert [i.opcode for i in module.entry.instructions] == ["parameter", "negate", "add"]


def test_the_sharding_of_a_call_moves_to_the_inlined_root_unless_that_has_one() -> None:
    text = """HloModule m
f { p = f32[4] parameter(0)  ROOT n = f32[4] negate(p) }
g { p = f32[4] parameter(0)  ROOT n = f32[4] negate(p), sharding={replicated} }
ENTRY e {
  x = f32[4] parameter(0)
  a = f32[4] call(x), to_apply=f, sharding={devices=[2]<=[2]}
  ROOT b = f32[4] call(a), to_apply=g, sharding={devices=[2]<=[2]}
}"""
    module = prepared(text)
    first, second = module.entry.instructions[1:]
    assert str(module.sharding(first)) == "{devices=[2]<=[2]}"
    assert str(module.sharding(second)) == "{replicated}"


def test_names_and_frames_of_a_call_stand_in_front_of_the_inlined_ones() -> None:
    import jax
    import jax.numpy as jnp

    from hlosharding.frontends import trace

    def inner(x: jax.Array) -> jax.Array:
        return jnp.sin(x)

    def outer(x: jax.Array) -> jax.Array:
        return jax.jit(inner)(x)

    module = trace(outer)(jnp.ones(3))
    sine = next(i for i in module.instructions if i.opcode == "sine")
    assert sine.op_name == "jit(outer)/jit(inner)/sin"
    functions = [f.function.rpartition(".")[2] for f in sine.frames]
    assert functions[:2] == ["inner", "outer"]


def test_a_call_marked_so_is_not_inlined() -> None:
    text = """HloModule m
f { p = f32[4] parameter(0)  ROOT n = f32[4] negate(p) }
ENTRY e { x = f32[4] parameter(0)  ROOT a = f32[4] call(x), to_apply=f, frontend_attributes={inlineable="false"} }"""
    assert prepared(text).entry.root.opcode == "call"


def test_zero_sized_values_become_constants_and_their_producers_go() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[0,4] parameter(0)
  y = f32[4,4] parameter(1)
  n = f32[0,4] negate(x)
  ROOT c = f32[4,4] concatenate(n, y), dimensions={0}
}"""
    module = prepared(text)
    assert [i.opcode for i in module.entry.root.operands] == ["constant", "parameter"]
    assert "negate" not in [i.opcode for i in module.entry.instructions]


def test_conditionals_take_and_return_tuples() -> None:
    text = """HloModule m
t { p = f32[4] parameter(0)  ROOT n = f32[4] negate(p) }
f { p = f32[4] parameter(0)  ROOT n = f32[4] abs(p) }
ENTRY e {
  i = s32[] parameter(0)
  x = f32[4] parameter(1)
  ROOT c = f32[4] conditional(i, x, x), branch_computations={t, f}
}"""
    module = prepared(text)
    root = module.entry.root
    assert root.opcode == "get-tuple-element"
    assert str(root.operands[0].shape) == "(f32[4])"
    assert all(b.root.opcode == "tuple" and b.parameters[0].shape.is_tuple for b in root.operands[0].called)


def test_annotations_on_values_that_others_use_are_not_dead() -> None:
    text = """HloModule m
f { p = f32[4] parameter(0)  ROOT n = f32[4] negate(p) }
ENTRY e {
  x = f32[4] parameter(0)
  a = f32[4] call(x), to_apply=f
  s = f32[4] custom-call(a), custom_call_target="Sharding", sharding={devices=[2]<=[2]}
  ROOT r = f32[4] add(a, a)
}"""
    assert "custom-call" in [i.opcode for i in prepared(text).entry.instructions]


def test_a_memory_placement_mark_that_names_no_memory_is_dropped() -> None:
    text = """HloModule m
ENTRY e { x = f32[4] parameter(0)  ROOT a = f32[4] custom-call(x), custom_call_target="annotate_device_placement" }"""
    assert lines(prepared(text)) == ["%x = f32[4] parameter()"]


@pytest.mark.parametrize(
    ("kind", "target"),
    [("pinned_host", "MoveToHost"), ("unpinned_host", "MoveToHost"), ("device", "MoveToDevice")],
)
def test_other_marks_become_the_moves_that_xla_makes_of_them(kind: str, target: str) -> None:
    text = f"""HloModule m
ENTRY e {{ x = f32[4] parameter(0)  ROOT a = f32[4] custom-call(x), custom_call_target="annotate_device_placement",
  custom_call_has_side_effect=true, frontend_attributes={{_xla_buffer_placement="{kind}"}} }}"""
    root = prepared(text).entry.root
    assert (root.custom_call_target, root.proto.custom_call_has_side_effect) == (target, False)


def test_loops_of_a_callee_used_twice_get_bodies_of_their_own() -> None:
    text = """HloModule m
cond { t = (s32[]) parameter(0)  i = s32[] get-tuple-element(t), index=0  k = s32[] constant(3)
  ROOT l = pred[] compare(i, k), direction=LT }
body { t = (s32[]) parameter(0)  i = s32[] get-tuple-element(t), index=0  ROOT n = (s32[]) tuple(i) }
f { p = (s32[]) parameter(0)  ROOT w = (s32[]) while(p), condition=cond, body=body }
ENTRY e {
  x = (s32[]) parameter(0)
  a = (s32[]) call(x), to_apply=f
  ROOT b = (s32[]) call(a), to_apply=f
}"""
    loops = [i for i in prepared(text).entry.instructions if i.opcode == "while"]
    assert len({c for loop in loops for c in loop.called}) == 4


def test_preparing_twice_changes_nothing_more() -> None:
    once = prepared(TWICE)
    assert lines(prepare(once)) == lines(once)


def test_a_size_set_to_all_there_is_goes_as_on_the_way_through_stablehlo() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[8] parameter(0)
  n = s32[] constant(8)
  k = s32[] constant(4)
  y = f32[8] set-dimension-size(x, n), dimensions={0}
  z = f32[<=8] set-dimension-size(y, k), dimensions={0}
  ROOT r = (f32[8], f32[<=8]) tuple(y, z)
}"""
    module = prepared(text)
    through = from_stablehlo(hlo_proto_to_stablehlo(from_hlo_text(text).to_hlo_proto()))
    for each in (module, through):
        assert [i.opcode for i in each.entry.instructions].count("set-dimension-size") == 1
    assert [o.opcode for o in module.entry.root.operands] == ["parameter", "set-dimension-size"]
