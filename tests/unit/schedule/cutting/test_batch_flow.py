"""Where dims of parameters flow."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import hlosharding as hs
from hlosharding.ir import Module
from hlosharding.schedule.cutting.batch_flow import find_batch_flow

WEIGHTS, ROWS = jax.ShapeDtypeStruct((3, 8, 8), jnp.float32), jax.ShapeDtypeStruct((16, 8), jnp.float32)


def scanned() -> Module:
    """The gradient of layers in a scan; the parameters are weights and rows."""

    def loss(weights: jax.Array, x: jax.Array) -> jax.Array:
        x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)
        return jnp.sum(x * x)

    return hs.trace(jax.grad(loss))(WEIGHTS, ROWS)


def test_it_flows_around_loops_and_into_what_they_stack() -> None:
    module = scanned()
    dims = find_batch_flow(module, {1: 0})
    forward, backward = sorted(module.of_opcodes("while"), key=lambda loop: "transpose" in loop.op_name)
    by_shape = {
        loop: {str(leaf): dim for leaf, dim in zip(loop.shape.leaves, dims[loop], strict=True) if dim is not None}
        for loop in (forward, backward)
    }
    assert by_shape[forward] == {"f32[16,8]": 0, "f32[3,16,8]": 1}
    assert by_shape[backward] == {"f32[16,8]": 0, "f32[3,16,8]": 1}


def test_weights_and_their_gradients_have_none() -> None:
    module = scanned()
    dims = find_batch_flow(module, {1: 0})
    assert {dims[inst] for inst in module.instructions if str(inst.shape) in ("f32[8,8]", "f32[3,8,8]")} == {(None,)}


def test_a_result_that_another_dim_leads_has_none() -> None:
    module = hs.trace(lambda x: x.T.reshape(-1))(ROWS)
    assert find_batch_flow(module, {0: 0})[module.entry.results[0]] == (None,)


def test_heads_end_where_a_product_of_activations_has_them_once() -> None:
    """As the experts of rows do in the gradient of what combines them: it need not be split as they are."""
    module = hs.trace(lambda made, y: jnp.einsum("ebw,bw->eb", made, y))(jnp.ones((4, 8, 2)), jnp.ones((8, 2)))
    made, y = module.entry.parameters
    [product] = module.of_opcodes("dot")
    assert find_batch_flow(module, {0: 0})[product] != (None,)
    assert find_batch_flow(module, {0: 0}, {made})[product] != (None,)
    assert find_batch_flow(module, {0: 0}, {made, y})[product] == (None,)
