"""What a loop writes into row by row stays as the loop carries it: the row moves, and not all rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.partitioner.overrides.sharding_overrides import IN_PLACE


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))


@pytest.mark.parametrize("is_annotated", [False, True])
def test_a_stack_that_is_wanted_otherwise_than_its_rows_are_made(mesh: Mesh, is_annotated: bool) -> None:
    """Only where the user annotates the stack itself, in each trip, it is moved there."""

    def split(x: jax.Array, *spec: str | None) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*spec)))

    def outer(x: jax.Array) -> jax.Array:
        def step(number: Any, carried: Any) -> Any:
            c, stack = carried
            row = split(c[:, :, None] + c[:, None, :], "data", "model")
            stack = jax.lax.dynamic_update_index_in_dim(stack, row, number, 0)
            return c * 1.1, split(stack, None, "data", "model") if is_annotated else stack

        stack = split(jnp.zeros((8, 6, 16, 16)), None, "data", None, "model")
        return split(jax.lax.fori_loop(0, 8, step, (x, stack))[1], None, "data", None, "model")

    x = np.linspace(-1, 1, 6 * 16, dtype=np.float32).reshape(6, 16)  # no batch that all devices could share
    local = hs.partition(hs.trace(outer, mesh=mesh, in_shardings=P("data"))(x))
    rows = 8 * 6 * 16 * 16 * 4 / 8 * 3 / 4  # in all trips
    largest = max(one.bytes_per_device for one in local.collectives)
    assert largest == pytest.approx(8 * rows if is_annotated else rows)
    assert bool([one for one in local.sharding_overrides if one.why == IN_PLACE]) is not is_annotated
    found = local.run(x)
    assert np.asarray(found) == pytest.approx(np.asarray(jax.jit(outer)(x)), rel=1e-6)
