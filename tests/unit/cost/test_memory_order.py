"""What frees memory runs as soon as it can: recomputing a listed layer saves what it saves in a scan."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import hlosharding as hs
from hlosharding.cost.memory_order import freeing_first

LAYERS, ROWS, WIDTH = 8, 16384, 256


def peak(*, is_scanned: bool, recomputes: bool) -> int:
    """Bytes of the gradient of layers 256-1024-256."""

    def layer(x: jax.Array, w: Any) -> jax.Array:
        return x + jnp.tanh(x @ w[0]) @ w[1]

    made = jax.checkpoint(layer) if recomputes else layer

    def loss(weights: Any, x: jax.Array) -> jax.Array:
        if is_scanned:
            x, _ = jax.lax.scan(lambda x, w: (made(x, w), None), x, weights)
        else:
            for w in weights:
                x = made(x, w)
        return jnp.mean(x * x)

    dims = (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)
    one = tuple(jax.ShapeDtypeStruct(size, jnp.float32) for size in dims)
    stacked = tuple(jax.ShapeDtypeStruct((LAYERS, *size), jnp.float32) for size in dims)
    x = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32)
    return hs.cost(hs.trace(jax.grad(loss))(stacked if is_scanned else [one] * LAYERS, x)).peak_memory_bytes


def test_recomputing_saves_as_much_of_listed_layers_as_of_scanned_ones() -> None:
    listed, scanned = (peak(is_scanned=scan, recomputes=True) for scan in (False, True))
    assert peak(is_scanned=False, recomputes=False) > 1.8 * listed
    assert listed == pytest.approx(scanned, rel=0.15)


def test_the_order_is_one_in_which_it_can_run() -> None:
    module = hs.trace(jax.grad(lambda w, x: jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ w))))(jnp.ones((4, 4)), jnp.ones((8, 4)))
    order = freeing_first(module.entry.post_order(), frozenset({"tuple"}), frozenset(), module.entry)
    place = {inst: n for n, inst in enumerate(order)}
    assert sorted(place, key=lambda i: i.id) == sorted(module.entry.instructions, key=lambda i: i.id)
    assert all(place[operand] < place[inst] for inst in order for operand in inst.operands)
