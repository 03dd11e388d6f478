"""A global array laid out over devices: what the host has is cut into tiles, what lies there already is moved.

Floor: executor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hlosharding import xla_bridge
from hlosharding.errors import ExecutionError
from hlosharding.executor.axis_choice import Needs, choose_axes
from hlosharding.executor.boundary import BoundaryArray, split
from hlosharding.executor.moving import LaidOut, laid_out, move_tiles
from hlosharding.executor.processes import check_same, is_own, is_shared
from hlosharding.executor.sharded_array import ShardedArray, as_tile, by_device, is_seen_whole, restack_tiles
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
        return move_tiles(found, sharding, devices)
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
    if isinstance(array, jax.Array) and array.sharding.is_equivalent_to(jax_sharding, array.ndim):
        return xla_bridge.array_of(array.shape, array.dtype, jax_sharding, by_device(array))
    devices = tuple(jax_sharding.mesh.devices.flat)
    found = _movable(array, devices)
    if found is None:
        host = on_host(array, what, devices)
        return jax.make_array_from_callback(host.shape, jax_sharding, lambda index: host[index], dtype=host.dtype)
    tiles = move_tiles(found, HloSharding.from_jax(jax_sharding, found.shape.rank), devices)
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

    if isinstance(array, ShardedArray) and array.sharding == sharding and _devices_of(array) == tuple(devices):
        return array
    tiles = tiles_on(array, sharding, devices, "the array")
    shape = Shape.from_dtype(jax.dtypes.canonicalize_dtype(array.dtype), tuple(np.shape(array)))
    return _stacked(tiles, shape, sharding, devices)


def _devices_of(array: ShardedArray) -> tuple[Any, ...]:
    return tuple(array.tiles.sharding.mesh.devices.flat)


def _stacked(tiles: Mapping[Any, Any], shape: Shape, sharding: HloSharding, devices: Sequence[Any]) -> ShardedArray:
    tile = shape.with_dims(tuple(sharding.tile_shape(shape.dims)))
    return ShardedArray(restack_tiles(tiles, devices, tile), sharding, shape.dims)


def lay_out(array: Any, sharding: HloSharding, devices: Sequence[Any]) -> Any:
    """A global array laid out as `sharding` says: a jax array where a NamedSharding can say it, else a ShardedArray.

    Tile i lies on `devices[i]`.
    """
    if is_shared(devices) and is_own(array):
        check_same({"the array": array})
    return lay_out_checked(array, sharding, devices)


def lay_out_checked(array: Any, sharding: HloSharding, devices: Sequence[Any]) -> Any:
    """As `lay_out`, of an array that is known to be the same in all processes."""
    named = _named_sharding(Shape.from_dtype(array.dtype, np.shape(array)), sharding, tuple(devices))
    return sharded_array(array, sharding, devices) if named is None else put(array, named, "the array")


def array_of_tiles(tiles: Mapping[Any, Any], shape: Shape, sharding: HloSharding, devices: Sequence[Any]) -> Any:
    """The global array of these tiles, by device those of this process, as `lay_out` gives it.

    Of an array that lies in other processes alone there are none: it has a shape, a type and a sharding.
    """
    named = _named_sharding(shape, sharding, tuple(devices))
    if named is None:
        return _stacked(tiles, shape, sharding, devices)
    dims = tuple(sharding.tile_shape(shape.dims))
    local = {device: as_tile(data, dims) for device, data in tiles.items()}
    return xla_bridge.array_of(shape.dims, shape.dtype, named, local)


def tiles_by_device(array: Any) -> dict[Any, Any]:
    """What this process has of an array that `lay_out` or a program gave, by device; tiles of scalars may be `[1]`."""
    return by_device(_of_jax(array))


@lru_cache(maxsize=512)
def _named_sharding(shape: Shape, sharding: HloSharding, devices: tuple[Any, ...]) -> Any:
    """The NamedSharding that says it, on a mesh of its own; None where none does."""
    import jax

    axes = choose_axes(None, len(devices), Needs(shardings=frozenset({(sharding, shape.rank)})))
    layout = BoundaryArray(shape, sharding).over(axes)
    if layout.spec is None:
        return None
    return jax.sharding.NamedSharding(axes.mesh(devices), layout.partition_spec(axes))
