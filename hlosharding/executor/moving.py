"""An array brought into another layout on the devices where it lies: by a program of its own, with no host in between.

Floor: executor.  The partitioner makes the program, as it makes any reshard; JAX itself knows no uneven tiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hlosharding import xla_bridge
from hlosharding.cost import machines
from hlosharding.errors import ShardingError
from hlosharding.executor.boundary import BoundaryArray
from hlosharding.executor.device_program import DeviceProgram, load_source
from hlosharding.executor.sharded_array import ShardedArray, as_tile, by_device, restack_tiles
from hlosharding.executor.source import write_source
from hlosharding.ir import Builder, Module, Shape
from hlosharding.partitioner import Decisions, Prices, ShardingTable, partition_module
from hlosharding.sharding import HloSharding, TileAssignment


@dataclass(frozen=True, slots=True)
class LaidOut:
    """A global array on devices: `devices[i]` holds tile i."""

    shape: Shape
    sharding: HloSharding
    devices: tuple[Any, ...]
    tiles: Mapping[Any, Any]
    """By device, those of this process."""


def laid_out(array: Any) -> LaidOut | None:
    """How an array lies on devices; None of what lies on none, and of jax arrays whose layout cannot be read."""
    import jax

    if isinstance(array, ShardedArray):
        shape = Shape.from_dtype(array.dtype, array.shape)
        return LaidOut(shape, array.sharding, tuple(array.tiles.sharding.mesh.devices.flat), by_device(array.tiles))
    mesh = getattr(getattr(array, "sharding", None), "mesh", None)
    if not isinstance(array, jax.Array) or not isinstance(mesh, jax.sharding.Mesh):
        return None
    try:
        sharding = HloSharding.from_jax(array.sharding, array.ndim)
    except ShardingError:
        return None
    return LaidOut(Shape.from_dtype(array.dtype, array.shape), sharding, tuple(mesh.devices.flat), by_device(array))


def move_tiles(array: LaidOut, target: HloSharding, devices: Sequence[Any]) -> dict[Any, Any]:
    """The tiles of `target` by device, those of this process: tile i on `devices[i]`, among which the array lies.

    All processes that have some of the devices call it, as they call any program.
    """
    wanted = _renumbered(target, {d: array.devices.index(device) for d, device in enumerate(devices)})
    program = _program(array.shape, array.sharding, wanted, array.devices)
    layout, sharding = program.boundary.inputs[0], program.input_shardings[0]
    if layout.is_stacked:
        tile = array.shape.with_dims(layout.tile)
        given = restack_tiles(array.tiles, list(program.mesh.devices.flat), tile, sharding)
    else:
        given = xla_bridge.array_of(array.shape.dims, array.shape.dtype, sharding, array.tiles)
    with program.own_settings():
        (result,) = program.call(given)
    tile = target.tile_shape(array.shape.dims)
    return {device: as_tile(data, tuple(tile)) for device, data in by_device(result).items()}


def _renumbered(sharding: HloSharding, numbers: Mapping[int, int]) -> HloSharding:
    """The same tiles, where device d has another number."""
    tiles = sharding.tile_assignment
    if tiles is None or all(old == new for old, new in numbers.items()):
        return sharding
    flat = [numbers[device] for device in tiles.flat]
    return HloSharding.from_parts(
        sharding.kind, TileAssignment.from_flat(tiles.dims, flat), types=sharding.subgroup_types
    )


@lru_cache(maxsize=512)
def _program(shape: Shape, source: HloSharding, target: HloSharding, devices: tuple[Any, ...]) -> DeviceProgram:
    module = _copy_module(shape, source, target, len(devices))
    # Which machine this is nobody says here: bytes are the same on all.
    prices = Prices(machines.h100(len(devices)), "bytes")
    table = ShardingTable(module.shardings, {})
    local = partition_module(module, table, Decisions(prices), num_partitions=len(devices)).module
    written = write_source(local, inputs=[BoundaryArray(shape, source)], outputs=[BoundaryArray(shape, target)])
    return DeviceProgram(written, devices, load_source(local, written))


def _copy_module(shape: Shape, source: HloSharding, target: HloSharding, count: int) -> Module:
    builder = Builder("move", num_partitions=count)
    main = builder.computation("main")
    parameter = main.parameter(0, shape)
    copy = main.add("copy", shape, (parameter,))
    main.root(copy)
    return builder.finish(main, {parameter: source, copy: target})
