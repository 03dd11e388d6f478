"""What a loop carries though it is made of constants alone: made in each trip."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import hlosharding as hs
from hlosharding.ir import Module

LENGTH = 512


def masked(layers: jax.Array, x: jax.Array) -> jax.Array:
    """JAX makes the mask and its fill value before the scan, as large as the scores."""

    def loss(x: jax.Array) -> jax.Array:
        def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            return jax.nn.dot_product_attention(x, x * w, x, is_causal=True), None

        return jnp.sum(jax.lax.scan(layer, x, layers)[0] ** 2)

    return jax.grad(loss)(x)


def carried(module: Module) -> list[str]:
    """Shapes of what the loops carry that has an element for each score of one layer."""
    leaves = {leaf for loop in module.of_opcodes("while") for leaf in loop.shape.leaves}
    return sorted(str(leaf) for leaf in leaves if leaf.dims == (1, 1, 2, LENGTH, LENGTH))


def test_a_mask_is_carried_no_longer_and_the_result_is_the_same() -> None:
    layers = jnp.linspace(0.5, 1.5, 3)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1, LENGTH, 2, 4)), jnp.float32)
    module = hs.trace(masked)(layers, x)
    assert carried(module) == ["f32[1,1,2,512,512]", "pred[1,1,2,512,512]"]
    made = hs.partition(module)
    assert not carried(made.module)
    np.testing.assert_allclose(made.run_reference(layers, x), masked(layers, x), rtol=1e-4, atol=1e-5)


TEXT = """HloModule m
body {{
  c = (s32[], f32[256,256], f32[256,256]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[256,256] get-tuple-element(c), index=1
  fill = f32[256,256] get-tuple-element(c), index=2
  y = f32[256,256] add(x, fill)
  ROOT r = (s32[], f32[256,256], f32[256,256]) tuple(next, y, {third})
}}
condition {{
  c = (s32[], f32[256,256], f32[256,256]) parameter(0)
  i = s32[] get-tuple-element(c), index=0
  n = s32[] constant(3)
  ROOT p = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  x = f32[256,256] parameter(0)
  zero = s32[] constant(0)
  two = f32[] constant(2)
  {made}
  t = (s32[], f32[256,256], f32[256,256]) tuple(zero, x, fill)
  w = (s32[], f32[256,256], f32[256,256]) while(t), condition=condition, body=body
  ROOT out = f32[256,256] get-tuple-element(w), index=1
}}"""
FILL = "fill = f32[256,256] broadcast(two), dimensions={}"


def partitioned(third: str = "fill", made: str = FILL) -> Module:
    return hs.partition(hs.load(TEXT.format(third=third, made=made))).module


def elements(third: str = "fill", made: str = FILL) -> int:
    [loop] = partitioned(third, made).of_opcodes("while")
    return len(loop.shape.tuple_shapes)


def test_what_is_carried_no_longer_is_not_made_before_the_loop() -> None:
    broadcast, *others = partitioned().of_opcodes("broadcast")
    assert not broadcast.computation.is_entry
    assert not others


def test_what_a_trip_changes_is_carried() -> None:
    assert (elements(), elements(third="y")) == (2, 3)


def test_what_is_read_from_memory_is_carried() -> None:
    assert elements(made="fill = f32[256,256] exponential(x)") == 3
