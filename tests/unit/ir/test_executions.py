"""How often computations run."""

from __future__ import annotations

from hlosharding import load
from hlosharding.ir import executions


def test_jax_loops_in_loops_multiply() -> None:
    import jax
    import jax.numpy as jnp

    def f(x):
        outer = lambda c, _: (jax.lax.fori_loop(0, 5, lambda i, y: y * i, c), None)  # noqa: E731
        return jax.lax.scan(outer, x, None, length=3)[0]

    module = load(jax.jit(f).lower(jnp.ones(4)), prepare=False)
    counts = {c.name: runs.count for c, runs in executions(module).items()}
    assert max(counts.values()) == 15 + 3  # the inner condition is asked once more than its body runs
    assert 15 in counts.values()


NESTED = """
HloModule m

double { d = f32[4] parameter(0)  ROOT dd = f32[4] add(d, d) }
first  { a = f32[4] parameter(0)  ROOT aa = f32[4] call(a), to_apply=double }
second { b = f32[4] parameter(0)  ROOT bb = f32[4] negate(b) }
reduce { u = f32[] parameter(0)  v = f32[] parameter(1)  ROOT w = f32[] add(u, v) }

ENTRY main {
  p = f32[4] parameter(0)
  i = s32[] parameter(1)
  zero = f32[] constant(0)
  sum = f32[] reduce(p, zero), dimensions={0}, to_apply=reduce
  once = f32[4] call(p), to_apply=double
  ROOT choice = f32[4] conditional(i, once, once), branch_computations={first, second}
}
"""


def test_calls_add_up_and_branches_are_marked() -> None:
    runs = {c.name: r for c, r in executions(load(NESTED)).items()}
    assert runs["double"].count == 2
    assert runs["double"].in_conditional
    assert runs["first"] == (1, True, True, False)
    assert runs["main"] == (1, False, True, False)
    assert "reduce" not in runs
