"""The batch keeps its split wherever it flows, whatever the weights are split along."""

from __future__ import annotations

import jax
import jax.numpy as jnp

import hlosharding as hs
from hlosharding.ir import Module
from hlosharding.schedule.cutting.batch_flow import batch_flow, keep_split
from hlosharding.sharding import HloSharding
from tests.support.fused_attention import Sizes, attention_step

WEIGHTS, ROWS = jax.ShapeDtypeStruct((3, 8, 8), jnp.float32), jax.ShapeDtypeStruct((16, 8), jnp.float32)


def scanned() -> Module:
    """The gradient of layers in a scan; the parameters are weights and rows."""

    def loss(weights: jax.Array, x: jax.Array) -> jax.Array:
        x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)
        return jnp.sum(x * x)

    return hs.trace(jax.grad(loss))(WEIGHTS, ROWS)


def test_it_flows_around_loops_and_into_what_they_stack() -> None:
    module = scanned()
    dims = batch_flow(module, {1: 0})
    forward, backward = sorted(module.of_opcodes("while"), key=lambda loop: "transpose" in loop.op_name)
    by_shape = {
        loop: {str(leaf): dim for leaf, dim in zip(loop.shape.leaves, dims[loop], strict=True) if dim is not None}
        for loop in (forward, backward)
    }
    assert by_shape[forward] == {"f32[16,8]": 0, "f32[3,16,8]": 1}
    assert by_shape[backward] == {"f32[16,8]": 0, "f32[3,16,8]": 1}


def test_weights_and_their_gradients_have_none() -> None:
    module = scanned()
    dims = batch_flow(module, {1: 0})
    assert {dims[inst] for inst in module.instructions if str(inst.shape) in ("f32[8,8]", "f32[3,8,8]")} == {(None,)}


def test_a_result_that_another_dim_leads_has_none() -> None:
    module = hs.trace(lambda x: x.T.reshape(-1))(ROWS)
    assert batch_flow(module, {0: 0})[module.entry.results[0]] == (None,)


def test_weights_that_are_split_over_the_same_devices_do_not_take_it_away() -> None:
    def product(weights: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.tanh(x @ weights[0]) @ weights[1]

    module = hs.trace(product)(WEIGHTS, ROWS)
    weights, rows = module.entry.parameters
    module.num_partitions = 8
    module.shardings = {
        weights.id: HloSharding.parse("{devices=[1,1,8]<=[8]}"),
        rows.id: HloSharding.parse("{devices=[8,1]<=[8]}"),
    }
    kept = keep_split(module, [{1: 0}])
    assert [value.opcode for value in kept] == ["dot", "dot"]
    assert [inst.id for inst in module.instructions] == list(range(len(list(module.instructions))))
    found = hs.partition(hs.propagate(module, to_outputs=True))
    assert {c.kind for c in found.collectives} == {"all-gather"}
    assert not any(c.shape.dims[0] == 16 for c in found.collectives)


def test_a_batch_that_lies_whole_is_constrained_to_nothing() -> None:
    assert keep_split(scanned(), [{1: 0}]) == {}


def test_what_calls_give_stays_split_as_the_batch_that_they_take() -> None:
    """cuDNN's flash attention, through which propagation carries no sharding."""
    module = attention_step(Sizes(), sharding="{devices=[8,1,1,1]<=[8]}")
    keep_split(module, [dict.fromkeys(range(4), 0)])
    local = hs.partition(hs.propagate(module, to_outputs=True), num_partitions=8)
    assert not hs.collectives(local)
    assert all(leaf.dims[0] == 1 for leaf in local.module.entry.root.shape.leaves)
