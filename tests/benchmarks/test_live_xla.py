"""The one way to live GSPMD through public JAX: what it hands out is what the two passes were given and made."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from benchmarks import live_xla

pytestmark = pytest.mark.oracle
SIDE = jax.ShapeDtypeStruct((16, 16), jnp.float32)


@pytest.fixture
def lowered(mesh_2x4: Mesh) -> jax.stages.Lowered:
    def matmul(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh_2x4, P("data", "model"))) @ y

    return live_xla.lower(matmul, (SIDE, SIDE))


def test_modules_are_taken_around_the_two_passes(lowered: jax.stages.Lowered) -> None:
    modules = live_xla.modules(lowered)
    assert b"Sharding" in modules.prepared
    assert b"all-reduce" not in modules.propagated
    assert b"all-reduce" in modules.partitioned or b"all-gather" in modules.partitioned


def test_both_passes_are_timed(lowered: jax.stages.Lowered) -> None:
    seconds = live_xla.pass_seconds(lowered)
    assert set(seconds) == {live_xla.PROPAGATION, live_xla.PARTITIONING}
    assert all(value > 0 for value in seconds.values())


def test_a_program_that_draws_random_numbers_does_not_end_the_process(mesh_2x4: Mesh) -> None:
    def drop(x: jax.Array) -> jax.Array:
        return x * jax.random.bernoulli(jax.random.key(0), 0.5, x.shape) + jax.random.normal(jax.random.key(1), x.shape)

    split = NamedSharding(mesh_2x4, P("data", "model"))
    made = hs.load(live_xla.partitioned_by(drop, (SIDE,), shardy=False, in_shardings=split), format="hlo-proto")
    assert [parameter.shape.dims for parameter in made.entry.parameters] == [(8, 4)]


def test_a_program_without_partitions_is_refused() -> None:
    with pytest.raises(RuntimeError, match="no dump"):
        live_xla.modules(live_xla.lower(lambda x: x + 1, (SIDE,)))


def test_the_partitioner_flag_is_put_back(lowered: jax.stages.Lowered) -> None:
    before = jax.config.jax_use_shardy_partitioner  # pyright: ignore[reportAttributeAccessIssue]
    with live_xla.gspmd():
        assert not jax.config.jax_use_shardy_partitioner  # pyright: ignore[reportAttributeAccessIssue]
    assert jax.config.jax_use_shardy_partitioner == before  # pyright: ignore[reportAttributeAccessIssue]
