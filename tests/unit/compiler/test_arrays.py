"""`hs.device_put`: any tile order, any size."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import hlosharding as hs
from hlosharding.errors import ExecutionError, ShardingError

TEXTS = [
    "{replicated}",
    "{devices=[8,1]<=[8]}",
    "{devices=[2,4]<=[8]}",
    "{devices=[4,2]<=[2,4]T(1,0)}",
    "{devices=[2,4]3,1,0,2,7,5,4,6}",
    "{devices=[8,1]7,6,5,4,3,2,1,0}",
    "{devices=[2,1,4]<=[8] last_tile_dim_replicate}",
    "{devices=[1,2,4]7,5,3,1,6,4,2,0 last_tile_dim_replicate}",
    "{devices=[3,2]<=[6]}",
    "{devices=[2,3]5,3,1,4,2,0}",
]


@pytest.mark.parametrize("dims", [(8, 8), (5, 7), (24, 12), (1, 3)], ids=str)
@pytest.mark.parametrize("text", TEXTS)
def test_every_tile_lies_on_its_device(text: str, dims: tuple[int, ...]) -> None:
    sharding = hs.HloSharding.parse(text)
    x = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    placed = hs.device_put(x, text)
    assert np.array_equal(np.asarray(placed), x)
    assert placed.shape == dims
    devices = jax.devices()
    held = (
        dict(enumerate(placed.local_arrays))
        if isinstance(placed, hs.ShardedArray)
        else {devices.index(s.device): s.data for s in placed.addressable_shards}
    )
    for device, tile in held.items():
        if sharding.is_replicated():
            assert np.array_equal(tile, x)
            continue
        low, high = sharding.tile_offset(dims, device), sharding.tile_limit(dims, device)
        part = x[tuple(slice(a, b) for a, b in zip(low, high, strict=True))]
        assert np.array_equal(np.asarray(tile)[tuple(slice(0, n) for n in part.shape)], part)


def test_even_tiles_over_the_mesh_order_are_jax_arrays() -> None:
    placed = hs.device_put(np.zeros((8, 8), np.float32), "{devices=[2,4]<=[8]}")
    assert isinstance(placed, jax.Array)
    assert isinstance(placed.sharding, NamedSharding)


def test_jax_shardings_pass_through(mesh_2x4: Mesh) -> None:
    sharding = NamedSharding(mesh_2x4, P("data"))
    assert hs.device_put(np.zeros((8, 8)), sharding).sharding == sharding


def test_tiles_that_jax_would_refuse_to_make_are_uneven_here(mesh_2x4: Mesh) -> None:
    placed = hs.device_put(np.arange(7), NamedSharding(mesh_2x4, P("data")))
    assert isinstance(placed, hs.ShardedArray)
    assert np.array_equal(np.asarray(placed), np.arange(7))


def test_lists_and_scalars_are_arrays_too() -> None:
    assert np.array_equal(np.asarray(hs.device_put([1.0, 2.0, 3.0], "{devices=[2]<=[2]}")), [1, 2, 3])
    assert float(hs.device_put(3.5, "{replicated}")) == 3.5


def test_devices_may_be_chosen() -> None:
    chosen = jax.devices()[4:]
    placed = hs.device_put(np.arange(8), "{devices=[4]<=[4]}", devices=chosen)
    assert placed.sharding.device_set == set(chosen)


def test_misfits_are_refused_in_words() -> None:
    with pytest.raises(ShardingError, match=r"rank|dim"):
        hs.device_put(np.zeros(8), "{devices=[2,4]<=[8]}")
    with pytest.raises(ExecutionError, match="16 devices"):
        hs.device_put(np.zeros(16), "{devices=[16]<=[16]}")
    with pytest.raises(ShardingError):
        hs.device_put(np.zeros(16), "{devices=[8]<=[9]}")


def test_a_sharded_array_is_a_leaf() -> None:
    placed = hs.device_put(np.arange(5, dtype=np.float32), "{devices=[2]<=[2]}")
    assert isinstance(placed, hs.ShardedArray)
    assert jax.tree.leaves({"a": placed}) == [placed]
    np.testing.assert_array_equal(jax.tree.map(lambda a: a * 2, placed), np.arange(5) * 2)
    refusing: list[Any] = [jnp.sum, ravel_pytree]
    for refused in refusing:
        with pytest.raises((TypeError, ValueError), match=r"jax_array|valid JAX"):
            refused(placed)
    assert float(jnp.sum(placed.as_jax())) == 10.0
    assert "shape=(5,)" in repr(placed)
    assert placed.block_until_ready() is placed
    assert np.asarray(placed, dtype=np.int32).dtype == np.int32
