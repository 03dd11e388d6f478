"""A global array laid out over devices: what the host has is cut into tiles, what lies there already is moved.

Floor: executor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError
from hlosharding.executor.axis_choice import Needs, choose_axes
from hlosharding.executor.boundary import BoundaryArray, split
from hlosharding.executor.moving import LaidOut, laid_out, moved
from hlosharding.executor.processes import check_same, is_own, is_shared
from hlosharding.executor.sharded_array import ShardedArray, is_seen_whole, register, restacked
from hlosharding.ir import Shape
from hlosharding.sharding import HloSharding


def on_host(array: Any, what: str, devices: Sequence[Any] = ()) -> np.ndarray:
    """The whole array; ExecutionError where this process has not all of it, or the others have another.

    `devices`: where it is to lie.
    """
    import jax

    found = _of_jax(array)
    if not is_seen_whole(found):
        raise ExecutionError(
            f"{what} lies on other devices than the program's, some of them of other processes",
            remedy="lay it out over the program's devices with jax.device_put",
        )
    is_local = isinstance(found, jax.Array) and found.committed and found.is_fully_addressable
    if is_local and any(device.process_index != jax.process_index() for device in devices):
        raise ExecutionError(
            f"{what} lies on devices of this process alone, and the program's are of several",
            remedy="make one array of all processes, with jax.make_array_from_process_local_data",
        )
    return np.asarray(array)


def tiles_on(array: Any, sharding: HloSharding, devices: Sequence[Any], what: str) -> dict[Any, Any]:
    """The local arrays of a global one, by device, those of this process: tile i on `devices[i]`."""
    found = _movable(array, devices)
    if found is not None:
        return moved(found, sharding, devices)
    return _cut(on_host(array, what, devices), sharding, devices)


def _of_jax(array: Any) -> Any:
    return array.tiles if isinstance(array, ShardedArray) else array


def _cut(array: np.ndarray, sharding: HloSharding, devices: Sequence[Any]) -> dict[Any, Any]:
    """The tiles of a host's array, each put on its device; of several processes each puts down its own."""
    import jax

    mine = jax.process_index()
    pairs = zip(split(array, sharding, len(devices)), devices, strict=True)
    return {device: jax.device_put(tile, device) for tile, device in pairs if device.process_index == mine}


def put(array: Any, jax_sharding: Any, what: str) -> Any:
    """A global array as a jax array of this NamedSharding, whose tiles are even."""
    import jax

    if jax_sharding.is_fully_addressable and not isinstance(array, ShardedArray):
        return jax.device_put(array, jax_sharding)
    devices = tuple(jax_sharding.mesh.devices.flat)
    found = _movable(array, devices)
    if found is None:
        host = on_host(array, what, devices)
        return jax.make_array_from_callback(host.shape, jax_sharding, lambda index: host[index], dtype=host.dtype)
    tiles = moved(found, HloSharding.from_jax(jax_sharding, found.shape.rank), devices)
    return xla_bridge.array_of(found.shape.dims, array.dtype, jax_sharding, _in_memory(tiles, jax_sharding.memory_kind))


def _movable(array: Any, devices: Sequence[Any]) -> LaidOut | None:
    """How an array lies that only a program can move: on these devices, some of them of other processes."""
    if is_seen_whole(_of_jax(array)):
        return None
    found = laid_out(array)
    return found if found is not None and set(found.devices) == set(devices) else None


def _in_memory(tiles: dict[Any, Any], kind: str | None) -> dict[Any, Any]:
    import jax

    if kind in (None, "device"):
        return tiles
    return {
        device: jax.device_put(tile, jax.sharding.SingleDeviceSharding(device, memory_kind=kind))
        for device, tile in tiles.items()
    }


def sharded_array(array: Any, sharding: HloSharding, devices: Sequence[Any]) -> ShardedArray:
    """Lay a global array out as `sharding` says, tile of partition i on `devices[i]`."""
    import jax

    register()
    if sharding.is_tuple():
        raise ExecutionError(f"{sharding} is of a tuple", remedy="lay out its arrays one by one")
    tiles = tiles_on(array, sharding, devices, "the array")
    shape = Shape.from_dtype(jax.dtypes.canonicalize_dtype(array.dtype), tuple(np.shape(array)))
    tile = shape.with_dims(tuple(sharding.tile_shape(shape.dims)))
    return ShardedArray(restacked(tiles, devices, tile), sharding, shape.dims)


def lay_out(array: Any, sharding: HloSharding, devices: Sequence[Any]) -> Any:
    """A global array laid out as `sharding` says: a jax array where a NamedSharding can say it, else a ShardedArray.

    Tile i lies on `devices[i]`.
    """
    import jax

    if is_shared(devices) and is_own(array):
        check_same({"the array": array})
    rank = np.ndim(array)
    axes = choose_axes(None, len(devices), Needs(shardings=frozenset({(sharding, rank)})))
    layout = BoundaryArray(Shape.from_dtype(array.dtype, np.shape(array)), sharding).over(axes)
    if layout.spec is None:
        return sharded_array(array, sharding, devices)
    mesh = jax.sharding.Mesh(np.array(devices, dtype=object).reshape(axes.sizes), axes.names)
    spec = jax.sharding.PartitionSpec(*[tuple(axes.names[p] for p in dim) or None for dim in layout.spec])
    return put(array, jax.sharding.NamedSharding(mesh, spec), "the array")
