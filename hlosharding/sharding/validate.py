"""Does a sharding fit a shape and a number of devices?

Floor: sharding.  Shapes as in `tuples`.
"""

from __future__ import annotations

from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.sharding.tuples import Sizes, leaf_sizes, parts_of
from hlosharding.sharding.value import ShardingValue


def validate(sharding: ShardingValue, shape: Any, num_devices: int | None = None) -> None:
    """Raise ShardingError unless `sharding` can be that of `shape` on `num_devices` devices (None: any number)."""
    is_tuple, leaves = parts_of(shape) is not None, leaf_sizes(shape)
    if sharding.kind != "tuple":
        if is_tuple:
            raise ShardingError(f"{sharding} is of one array, the shape is a tuple of {len(leaves)} leaves")
        _validate_leaf(sharding, leaves[0], num_devices)
        return
    if not is_tuple:
        if leaves[0] is None:
            return
        raise ShardingError(f"{sharding} is of a tuple, the shape {list(leaves[0])} is of one array")
    if not leaves and len(sharding.tuple_elements) <= 1:
        return
    if len(leaves) != len(sharding.tuple_elements):
        raise ShardingError(f"{sharding} has {len(sharding.tuple_elements)} leaves, the shape has {len(leaves)}")
    for number, (leaf, sizes) in enumerate(zip(sharding.tuple_elements, leaves, strict=True)):
        try:
            _validate_leaf(leaf, sizes, num_devices)
        except ShardingError as error:
            raise ShardingError(error.what, where=f"leaf {number} of the tuple", remedy=error.remedy) from error


def _validate_leaf(sharding: ShardingValue, sizes: Sizes, num_devices: int | None) -> None:
    tiles = sharding.tile_assignment
    if sizes is None or tiles is None:
        return
    largest = tiles.num_elements - 1 if tiles.iota is not None else max(tiles.flat)
    if num_devices is not None and largest >= num_devices:
        raise ShardingError(f"{sharding} uses device {largest}, there are {num_devices}")
    if sharding.kind == "maximal":
        return
    rank = sharding.tiled_data_rank
    if len(sizes) != rank:
        raise ShardingError(f"{sharding} splits {rank} dims, the shape {list(sizes)} has {len(sizes)}")
    if num_devices is not None and tiles.num_elements != num_devices:
        raise ShardingError(
            f"{sharding} uses {tiles.num_elements} devices, there are {num_devices}",
            remedy="devices that hold copies are listed too: last_tile_dim_replicate",
        )
    if tiles.num_elements == 1:
        raise ShardingError(f"{sharding} tiles over one device", remedy="use replicated, or maximal")
