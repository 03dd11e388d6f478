"""Any transfer between meshes of eight CPU devices gives what `jax.device_put` gives, for just the bytes that lack."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import hlosharding as hs

MESHES = st.sampled_from([(1,), (2,), (3,), (4,), (2, 2), (2, 3), (4, 2), (2, 2, 2)])
DTYPES = st.sampled_from(["f4", "i1", "bool", "bfloat16"])


@st.composite
def meshes(draw: st.DrawFn) -> Mesh:
    """Some of the eight devices, in any order."""
    sizes = draw(MESHES)
    devices = draw(st.permutations(jax.devices("cpu")))[: math.prod(sizes)]
    return Mesh(np.array(devices, dtype=object).reshape(sizes), tuple("abc"[: len(sizes)]))


@st.composite
def specs(draw: st.DrawFn, mesh: Mesh, rank: int) -> NamedSharding:
    """Some axes on some dims."""
    dims: list[list[str]] = [[] for _ in range(rank)]
    for name in draw(st.permutations(mesh.axis_names)):
        where = draw(st.integers(-1, rank - 1))
        if where >= 0:
            dims[where].append(name)
    return NamedSharding(mesh, PartitionSpec(*(tuple(names) or None for names in dims)))


@st.composite
def transfers(draw: st.DrawFn) -> tuple[list[Any], list[NamedSharding], list[NamedSharding]]:
    """Arrays that both sides cut evenly, as a jax.Array must be."""
    before, after = draw(meshes()), draw(meshes())
    arrays, sources, targets = [], [], []
    for _ in range(draw(st.integers(1, 3))):
        dims = tuple(draw(st.lists(st.sampled_from([1, 2, 3]), max_size=3)))
        source, target = draw(specs(before, len(dims))), draw(specs(after, len(dims)))
        ways = [np.lcm(_ways(source, d), _ways(target, d)) for d in range(len(dims))]
        shape = tuple(int(size * way) for size, way in zip(dims, ways, strict=True))
        numbers = np.random.default_rng(0).integers(0, 100, shape)
        arrays.append(jax.device_put(jnp.asarray(numbers, draw(DTYPES)), source))
        sources.append(source)
        targets.append(target)
    return arrays, sources, targets


def _ways(sharding: NamedSharding, dim: int) -> int:
    names = tuple(sharding.spec)[dim] or ()
    return math.prod(sharding.mesh.shape[name] for name in names)


def lacking_bytes(array: jax.Array, target: NamedSharding) -> int:
    """Elements of every device's target tile that it does not hold, counted one by one."""
    found = 0
    held = array.sharding.devices_indices_map(array.shape)
    for device, index in target.devices_indices_map(array.shape).items():
        wanted = np.zeros(array.shape, bool)
        wanted[index] = True
        if device in held:
            wanted[held[device]] = False
        found += int(wanted.sum())
    return found * array.dtype.itemsize


@given(transfers())
def test_arrays_arrive(given_: tuple[list[Any], list[NamedSharding], list[NamedSharding]]) -> None:
    arrays, sources, targets = given_
    plan = hs.plan_transfer(arrays, sources, targets)
    for array, target, moved in zip(arrays, targets, plan.run(arrays), strict=True):
        assert moved.sharding == target
        assert moved.dtype == array.dtype
        np.testing.assert_array_equal(np.asarray(moved), np.asarray(jax.device_put(array, target)))
        for here, there in zip(moved.addressable_shards, jax.device_put(array, target).addressable_shards, strict=True):
            assert here.device == there.device
            np.testing.assert_array_equal(np.asarray(here.data), np.asarray(there.data))
    assert plan.received_bytes == sum(map(lacking_bytes, arrays, targets))
    assert sum(send.nbytes for sends in plan.rounds for send in sends) == plan.received_bytes
