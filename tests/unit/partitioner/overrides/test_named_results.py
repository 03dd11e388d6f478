"""Open results of traced functions lie as JAX's arrays can; values are those of one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs

X = np.arange(16 * 64, dtype=np.float32).reshape(16, 64)
WHY = "nobody asked for it, and the axes of the mesh cannot say it: JAX's arrays could not have it"
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "rows turned round": lambda x: x[::-1],
    "both": lambda x: {"turned": x[::-1, ::-1], "as it was": x + 1},
    "rolled by a tile": lambda x: jnp.roll(x, 8, axis=0),
    "a part": lambda x: x[3:10],
    "folded": lambda x: x.reshape(4, 4, 8, 8)[:, ::-1],
}


@pytest.mark.parametrize("spec", [P("data", "model"), P(("model", "data")), P(None, "model")])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_jax_arrays(mesh_2x4: Mesh, name: str, spec: P) -> None:
    step = hs.jit(FUNCTIONS[name], mesh=mesh_2x4, in_shardings=spec)
    for got, want in zip(jax.tree.leaves(step(X)), jax.tree.leaves(FUNCTIONS[name](X)), strict=True):
        assert isinstance(got, jax.Array)
        assert isinstance(got.sharding, NamedSharding)
        assert got.sharding.mesh.axis_names == mesh_2x4.axis_names
        np.testing.assert_array_equal(got, want)


def test_the_nearest_name_is_taken_and_said(mesh_2x4: Mesh) -> None:
    partitioned = hs.jit(lambda x: x[::-1], mesh=mesh_2x4, in_shardings=P("data")).trace(X).propagate().partition()
    local = partitioned.partitioned
    assert [(o.name, o.why) for o in local.sharding_overrides] == [(local.propagation.module.entry.root.name, WHY)]
    # At most each half goes to where the other was, by one permute.
    assert [c.kind for c in local.collectives] == ["collective-permute"]
    assert local.comm_bytes_per_device <= X.nbytes / 2


def test_what_the_user_asked_for_he_gets(mesh_2x4: Mesh) -> None:
    backwards = np.arange(8)[::-1].reshape(8, 1)
    step = hs.jit(lambda x: hs.with_sharding(x + 1, backwards), mesh=mesh_2x4, in_shardings=P("data"))
    assert str(step(X).sharding) == "{devices=[8,1]7,6,5,4,3,2,1,0}"
    np.testing.assert_array_equal(step(X), X + 1)
