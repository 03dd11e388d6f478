"""`hs.explain` of a source line: the values that are made there, and the conflicts that go back to it."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import hlosharding as hs

SPLIT_BY_ROWS, BY_COLUMNS = "{devices=[4,1]<=[4]}", "{devices=[1,4]<=[4]}"
# The constraint of line 3 makes line 2 meet a weight that its user split along the same axis.
CLASH = f"""HloModule m, num_partitions=4
ENTRY e {{
  x = f32[8,8] parameter(0), sharding={{replicated}}, metadata={{op_name="x"}}
  w = f32[8,8] parameter(1), sharding={BY_COLUMNS}, metadata={{op_name="w"}}
  y = f32[8,8] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
    metadata={{source_file="m.py" source_line=2}}
  z = f32[8,8] custom-call(y), custom_call_target="Sharding", sharding={SPLIT_BY_ROWS},
    metadata={{source_file="m.py" source_line=3}}
  ROOT out = f32[8,8] negate(z), metadata={{source_file="m.py" source_line=4}}
}}"""


def conflicts_in(found: hs.Explanations) -> list[frozenset[str]]:
    own = [one.pair for one in found.answers if isinstance(one, hs.LostOffer)]
    return [lost.pair for value in found.answers for lost in getattr(value, "conflicts", ())] + own


def test_a_conflict_is_told_at_both_of_its_lines() -> None:
    propagation = hs.propagate(hs.load(CLASH))
    [clash] = [lost.pair for lost in propagation.conflicts if lost.pair == frozenset("yw")]
    for line in ("m.py:2", "m.py:3"):  # where the value is made, and where it was annotated
        assert clash in conflicts_in(hs.explain(propagation, line))
    assert clash not in conflicts_in(hs.explain(propagation, "m.py:4"))


def test_a_conflict_is_told_once() -> None:
    for line in ("m.py:2", "m.py:3"):
        assert conflicts_in(hs.explain(hs.propagate(hs.load(CLASH)), line)).count(frozenset("yw")) == 1


def test_the_line_of_a_constraint_in_a_traced_function() -> None:
    mesh = jax.sharding.AbstractMesh((2, 4), ("data", "model"))

    def step(x: jax.Array, w: jax.Array) -> jax.Array:
        y = x @ w
        return jax.lax.with_sharding_constraint(y, jax.NamedSharding(mesh, jax.P("model")))

    module = hs.trace(step, mesh=mesh, in_shardings=(None, jax.P(None, "model")))(jnp.ones((8, 8)), jnp.ones((8, 8)))
    [at] = {i.location for i in module.instructions if i.opcode == "custom-call"}
    text = str(hs.explain(module, at))
    assert "conflict: %dot_general" in text
    assert "operand 1, %w.1 (parameter at w) P(None, 'model'), offers P(None, 'model')" in text
