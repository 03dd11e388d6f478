"""Manual regions: what is per device already is taken over as it stands."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.errors import PartitionError
from tests.support.split_programs import counts, module_of


def ring(x: jax.Array) -> jax.Array:
    return jax.lax.ppermute(x, "data", [(0, 1), (1, 0)]) + jax.lax.axis_index("data")


@pytest.mark.parametrize("given", [P("data"), P("data", "model"), P(None, "model"), P()])
def test_a_shard_map_inside_a_program_is_right(mesh_2x4: jax.sharding.Mesh, given: P) -> None:
    region = jax.shard_map(ring, mesh=mesh_2x4, in_specs=P("data", "model"), out_specs=P("data", "model"))

    def program(x: jax.Array) -> jax.Array:
        return jnp.cos(region(x * 2)).sum(0)

    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    local = hs.partition(hs.trace(program, mesh=mesh_2x4, in_shardings=given)(x))
    assert np.allclose(local.run(x), jax.jit(program)(x), rtol=1e-5)
    assert counts(local)["collective-permute"] == 1


def test_sums_inside_a_region_stay_the_users_own(mesh_2x4: jax.sharding.Mesh) -> None:
    def mean(x: jax.Array) -> jax.Array:
        return jax.lax.pmean(x.sum(), ("data", "model"))

    program = jax.shard_map(mean, mesh=mesh_2x4, in_specs=P("data", "model"), out_specs=P())
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    local = hs.partition(hs.trace(program, mesh=mesh_2x4)(x))
    assert np.allclose(local.run(x), x.sum() / 8)
    assert counts(local) == {"all-reduce": 1}


@pytest.mark.parametrize("reduce", [jax.lax.psum, jax.lax.pmax, jax.lax.pmean])
def test_a_sum_over_an_axis_of_size_one_is_the_value(reduce: Callable[..., jax.Array]) -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(1, 4), ("one", "four"))
    region = jax.shard_map(lambda x: reduce(x, "one"), mesh=mesh, in_specs=P("one"), out_specs=P(), axis_names={"one"})
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    local = hs.partition(hs.trace(lambda x: region(x * 2), mesh=mesh, in_shardings=P(None, "four"))(x))
    assert np.array_equal(local.run(x), x * 2)
    assert not local.warnings
    assert not local.collectives


def test_a_loop_inside_a_region_is_taken_over(mesh_2x4: jax.sharding.Mesh) -> None:
    def steps(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(
            0, 3, lambda _, y: jax.lax.ppermute(y, "model", [(i, (i + 1) % 4) for i in range(4)]), x
        )

    program = jax.shard_map(steps, mesh=mesh_2x4, in_specs=P("data", "model"), out_specs=P("data", "model"))
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    local = hs.partition(hs.trace(program, mesh=mesh_2x4)(x))
    assert np.array_equal(local.run(x), jax.jit(program)(x))


def test_a_region_whose_tiles_do_not_fit_is_refused() -> None:
    module = module_of("""
        x = f32[16] parameter(0), sharding={devices=[8]<=[8]}
        a = f32[16] custom-call(x), custom_call_target="Sharding", sharding={devices=[8]<=[8]}
        b = f32[4] custom-call(a), custom_call_target="SPMDFullToShardShape", sharding={manual}
        c = f32[4] negate(b), sharding={manual}
        ROOT d = f32[16] custom-call(c), custom_call_target="SPMDShardToFullShape", sharding={devices=[8]<=[8]}""")
    with pytest.raises(PartitionError, match="a manual region takes"):
        hs.partition(module)
