"""A sum of which each device keeps its slice is a reduce-scatter, through what keeps parts apart; other sums stay."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import hlosharding as hs

P = PartitionSpec


def annotated_whole(
    mesh: Mesh, *, order: tuple[int, ...] = (0, 1), keep: bool = False, then: str = "model"
) -> hs.Module:
    """x @ w summed over `model`, annotated whole over it, transposed, and split over it where it is read."""

    def product(x: jax.Array, w: jax.Array) -> tuple[jax.Array, ...]:
        y = jax.lax.with_sharding_constraint(x @ w, NamedSharding(mesh, P("data", None)))
        spec = P("data", "model") if order == (0, 1) else P("model", "data")
        z = jax.lax.with_sharding_constraint(jnp.transpose(y, order), NamedSharding(mesh, spec))
        return (jnp.tanh(z), y) if keep else (jnp.tanh(z),)

    shapes = jax.ShapeDtypeStruct((16, 64), jnp.float32), jax.ShapeDtypeStruct((64, 32), jnp.float32)
    return hs.trace(product, mesh=mesh, in_shardings=(P("data", "model"), P("model")))(*shapes)


def kinds(local: hs.Partitioned) -> list[str]:
    return [one.kind for one in local.collectives]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_sum_sliced_by_device_is_scattered(mesh_2x4: Mesh, order: tuple[int, ...]) -> None:
    local = hs.partition(annotated_whole(mesh_2x4, order=order))
    assert kinds(local) == ["reduce-scatter"]
    # [8, 32] on each device, of which 3 of 4 quarters are added up elsewhere.
    assert local.comm_bytes_per_device == 3 / 4 * 8 * 32 * 4
    x, w = np.random.default_rng(0).normal(size=(16, 64)), np.random.default_rng(1).normal(size=(64, 32))
    x, w = x.astype(np.float32), w.astype(np.float32)
    for run in (local.run, local.run_reference):
        (found,) = run(x, w)
        np.testing.assert_allclose(found, np.tanh(x @ w).transpose(order), rtol=1e-5, atol=1e-5)


def test_parts_in_another_order_go_to_their_devices() -> None:
    """The devices that sum are in the order of one mesh, the parts in the reverse order of the other."""
    text = """HloModule m, num_partitions=4
    ENTRY e {
      x = f32[8,16] parameter(0), sharding={devices=[1,4]<=[4]}
      w = f32[16,8] parameter(1), sharding={devices=[4,1]<=[4]}
      y = f32[8,8] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, sharding={replicated}
      ROOT z = f32[8,8] copy(y), sharding={devices=[4,1]3,1,2,0}
    }"""
    local = hs.partition(hs.load(text))
    assert kinds(local) == ["reduce-scatter"]
    assert local.collectives[0].groups == ((3, 1, 2, 0),)
    x, w = (np.arange(128, dtype=np.float32).reshape(dims) for dims in ((8, 16), (16, 8)))
    np.testing.assert_allclose(local.run(x, w), x @ w, rtol=1e-6)


def test_a_sum_that_somebody_reads_whole_stays(mesh_2x4: Mesh) -> None:
    assert "all-reduce" in kinds(hs.partition(annotated_whole(mesh_2x4, keep=True)))


def test_a_slice_along_other_devices_is_no_scatter(mesh_2x4: Mesh) -> None:
    """Rows are split over `data` by the operands already; the sum is over `model`."""

    def product(x: jax.Array, w: jax.Array) -> jax.Array:
        y = jax.lax.with_sharding_constraint(x @ w, NamedSharding(mesh_2x4, P()))
        return jax.lax.with_sharding_constraint(y, NamedSharding(mesh_2x4, P(None, "data")))

    shapes = jax.ShapeDtypeStruct((16, 64), jnp.float32), jax.ShapeDtypeStruct((64, 32), jnp.float32)
    local = hs.partition(hs.trace(product, mesh=mesh_2x4, in_shardings=(P(None, "model"), P("model")))(*shapes))
    assert "reduce-scatter" not in kinds(local)
