"""Arguments and results in the host's memory: `memory_kind` of a sharding is kept."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs

X = np.arange(64, dtype=np.float32).reshape(8, 8)


@pytest.mark.parametrize("inside", ["device", "pinned_host"])
@pytest.mark.parametrize("outside", ["device", "pinned_host"])
def test_arrays_lie_where_their_shardings_say(mesh_2x4: Mesh, inside: str, outside: str) -> None:
    given = NamedSharding(mesh_2x4, P("data", "model"), memory_kind=inside)
    wanted = NamedSharding(mesh_2x4, P("model"), memory_kind=outside)
    step = hs.jit(
        lambda x: (jnp.sin(x) @ x.T, x.sum()), mesh=mesh_2x4, in_shardings=given, out_shardings=(wanted, None)
    )
    product, total = step(jax.device_put(X, given))
    assert product.sharding.memory_kind == outside
    np.testing.assert_allclose(product, np.sin(X) @ X.T, rtol=1e-4, atol=1e-3)
    assert float(total) == X.sum()


@pytest.mark.parametrize("name", ["last", "one of two", "used again", "brought back", "an argument", "overruled"])
def test_arrays_that_the_function_moves_lie_where_jax_leaves_them(name: str, mesh_2x4: Mesh) -> None:
    host, device = (NamedSharding(mesh_2x4, P("data"), memory_kind=kind) for kind in ("pinned_host", "device"))
    function, given, options = {
        "last": (lambda x: jax.device_put(x * 2, host), X, {}),
        "one of two": (lambda x: (jax.device_put(x * 2, host), x + 1), X, {}),
        "used again": (lambda x: jax.device_put(x * 2, host) + 1, X, {}),
        "brought back": (lambda x: jax.device_put(jax.device_put(x * 2, host), device) + 1, X, {}),
        "an argument": (lambda x: (x, jax.device_put(x, jax.memory.Space.Device) * 2), jax.device_put(X, host), {}),
        "overruled": (lambda x: jax.device_put(x * 2, host), X, {"out_shardings": device}),
    }[name]
    wanted = jax.jit(function, **options)(given)
    found = hs.jit(function, mesh=mesh_2x4, **options)(given)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert ours.sharding.memory_kind == theirs.sharding.memory_kind
        np.testing.assert_array_equal(ours, theirs)


def test_rows_that_a_scan_offloads_fill_a_buffer_on_the_host() -> None:
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["hidden"],
        offload_src="device",
        offload_dst="pinned_host",
    )

    @partial(jax.checkpoint, policy=policy)
    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        return x + checkpoint_name(jnp.tanh(x @ w), "hidden") @ w.T

    def loss(weights: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.sum(jax.lax.scan(lambda x, w: (layer(x, w), None), x, weights)[0])

    weights = np.linspace(-0.1, 0.1, 3 * 64, dtype=np.float32).reshape(3, 8, 8)
    module = hs.trace(jax.grad(loss), platform="cuda", in_shardings=(None, "{devices=[8,1]<=[8]}"))(weights, X)
    partitioned = hs.partition(module)
    assert "jax.device_put(lax.broadcast(np.float32(0.0), (3, 1, 8)), jax.memory.Space.Host)" in partitioned.as_python()
    np.testing.assert_allclose(partitioned.run(weights, X), jax.jit(jax.grad(loss))(weights, X), rtol=1e-4, atol=1e-4)
