"""What lies alike, whatever is chosen."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

import hlosharding as hs
from hlosharding.search.optimum.value_classes import ValueClasses

LOOP = """HloModule m
going { p = (s32[], f32[8,4]) parameter(0)  i = s32[] get-tuple-element(p), index=0
  c = s32[] constant(3)  ROOT r = pred[] compare(i, c), direction=LT }
step { p = (s32[], f32[8,4]) parameter(0)  i = s32[] get-tuple-element(p), index=0
  h = f32[8,4] get-tuple-element(p), index=1  one = s32[] constant(1)  next = s32[] add(i, one)
  square = f32[4,4] dot(h, h), lhs_contracting_dims={0}, rhs_contracting_dims={0}
  made = f32[8,4] dot(h, square), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[8,4]) tuple(next, made) }
ENTRY e { zero = s32[] constant(0)  x = f32[8,4] parameter(0)  y = f32[8,4] transpose(x), dimensions={0,1}
  t = (s32[], f32[8,4]) tuple(zero, y)  w = (s32[], f32[8,4]) while(t), condition=going, body=step
  ROOT out = f32[8,4] get-tuple-element(w), index=1 }"""


def test_what_a_loop_carries_lies_alike() -> None:
    module = hs.load(LOOP)
    classes = ValueClasses(module)
    [before], [inside], [after] = (classes.of(module.by_name(name)) for name in ("y", "made", "out"))
    assert before == inside == after
    assert classes.of(module.by_name("square")) != (before,)
    assert classes.order.index(module.by_name("made")) < classes.order.index(module.by_name("w"))


def test_an_update_may_read_weights_that_lie_elsewhere() -> None:
    def update(w: jax.Array, m: jax.Array) -> tuple[jax.Array, jax.Array]:
        m = 0.9 * m + 1
        return w - m, m

    module = hs.trace(update)(jnp.ones((8, 4)), jnp.ones((8, 4)))
    classes = ValueClasses(module)
    weights, moments = module.entry.parameters
    first, second = module.entry.root.operands
    assert classes.of(first) == classes.of(second)
    assert len({classes.of(weights), classes.of(moments), classes.of(first)}) == 3


def test_a_function_that_is_called_twice_has_its_values_lie_alike() -> None:
    module = hs.load("""HloModule m
f { p = f32[8,4] parameter(0)  ROOT r = f32[8,4] tanh(p) }
ENTRY e { x = f32[8,4] parameter(0)  y = f32[8,4] transpose(x), dimensions={0,1}
  z = f32[8,4] transpose(x), dimensions={0,1}
  a = f32[8,4] call(y), to_apply=f  b = f32[8,4] call(z), to_apply=f
  ROOT t = (f32[8,4], f32[8,4]) tuple(a, b) }""")
    classes = ValueClasses(module)
    assert classes.of(module.by_name("y")) == classes.of(module.by_name("z"))
    assert classes.of(module.by_name("a")) == classes.of(module.by_name("b"))


def test_branches_give_back_what_lies_alike() -> None:
    def choose(which: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.cond(which > 0, lambda x: x @ x, lambda x: jnp.tanh(x) @ x.T, x)

    module = hs.trace(choose)(jnp.ones((), jnp.int32), jnp.ones((8, 8)))
    classes = ValueClasses(module)
    conditional = next(inst for inst in module.instructions if inst.opcode == "conditional")
    assert {classes.of(branch.root) for branch in conditional.called} == {classes.of(conditional)}


def test_zeros_lie_as_each_that_starts_with_them() -> None:
    """Arguments of a loop whose moments start from one constant are no one class for that."""

    def train(up: jax.Array, down: jax.Array, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(carry: Any, rows: jax.Array) -> tuple[Any, None]:
            up, down, first, second = carry
            first = 0.9 * first + rows @ up
            second = 0.9 * second + rows @ down
            return (up - first, down - second, first, second), None

        zero = jnp.zeros((8, 8))
        return jax.lax.scan(step, (up, down, zero, zero), rows)[0][:2]

    shape = jax.ShapeDtypeStruct((8, 8), jnp.float32)
    module = hs.trace(train)(shape, shape, jax.ShapeDtypeStruct((3, 8, 8), jnp.float32))
    classes = ValueClasses(module)
    up, down, _ = module.entry.parameters
    assert classes.of(up) != classes.of(down)
    [loop] = [inst for inst in module.instructions if inst.opcode == "while"]
    assert not classes.free.intersection(classes.leaves[loop])


def test_a_branch_that_gives_zeros_leaves_its_value_to_be_moved() -> None:
    def choose(which: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.cond(which > 0, lambda x: x @ x, jnp.zeros_like, x)

    module = hs.trace(choose)(jnp.ones((), jnp.int32), jnp.ones((8, 8)))
    classes = ValueClasses(module)
    [conditional] = [inst for inst in module.instructions if inst.opcode == "conditional"]
    assert not classes.free.intersection(classes.leaves[conditional])


def test_what_a_second_call_hands_over_is_moved() -> None:
    module = hs.load("""HloModule m
f { p = f32[8,4] parameter(0)  ROOT r = f32[4,8] transpose(p), dimensions={1,0} }
ENTRY e { x = f32[8,4] parameter(0)  one = f32[] constant(1)  ones = f32[8,4] broadcast(one), dimensions={}
  y = f32[8,4] transpose(x), dimensions={0,1}
  a = f32[4,8] call(ones), to_apply=f  b = f32[4,8] call(y), to_apply=f
  ROOT t = (f32[4,8], f32[4,8]) tuple(a, b) }""")
    classes = ValueClasses(module)
    assert not classes.free.intersection(classes.leaves[module.by_name("p")])
