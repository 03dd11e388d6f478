"""Does a sharding fit a shape and a number of devices?

Floor: sharding.  A shape is a tuple of sizes; a tuple's shape is a tuple of such.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.sharding.hlo_sharding import HloSharding


def validate(sharding: HloSharding, shape: Any, num_devices: int | None = None) -> None:
    """Raise ShardingError unless `sharding` can be that of `shape` on `num_devices` devices (None: any number).

    `shape` may be a sequence of sizes, a (nested) sequence of such for tuples, None for a token, or an `ir.Shape`.
    """
    leaves = _leaf_shapes(shape)
    if sharding.kind != "tuple":
        if leaves is not None:
            raise ShardingError(f"{sharding} is of one array, the shape is a tuple of {len(leaves)} leaves")
        _validate_leaf(sharding, _sizes(shape), num_devices)
        return
    if leaves is None:
        raise ShardingError(f"{sharding} is of a tuple, the shape {_show(shape)} is of one array")
    if not leaves and len(sharding.tuple_elements) <= 1:
        return
    if len(leaves) != len(sharding.tuple_elements):
        raise ShardingError(f"{sharding} has {len(sharding.tuple_elements)} leaves, the shape has {len(leaves)}")
    for number, (leaf, sizes) in enumerate(zip(sharding.tuple_elements, leaves, strict=True)):
        try:
            _validate_leaf(leaf, sizes, num_devices)
        except ShardingError as error:
            raise ShardingError(error.what, where=f"leaf {number} of the tuple", remedy=error.remedy) from error


def _leaf_shapes(shape: Any) -> list[Sequence[int] | None] | None:
    """Sizes of each leaf of a tuple's shape; None if `shape` is no tuple's."""
    if hasattr(shape, "is_tuple"):
        return [_sizes(leaf) for leaf in shape.leaves] if shape.is_tuple else None
    if shape is None or (len(shape) and all(isinstance(part, int) for part in shape)):
        return None
    if not len(shape):
        # () is a scalar; an empty tuple's shape is [] to tell them apart.
        return [] if isinstance(shape, list) else None
    found: list[Sequence[int] | None] = []
    for part in shape:
        inner = _leaf_shapes(part)
        found += [_sizes(part)] if inner is None else inner
    return found


def _sizes(shape: Any) -> Sequence[int] | None:
    if hasattr(shape, "is_token"):
        return None if shape.is_token else tuple(shape.dims)
    return None if shape is None else tuple(shape)


def _show(shape: Any) -> str:
    return str(list(shape)) if isinstance(shape, list | tuple) else str(shape)


def _validate_leaf(sharding: HloSharding, sizes: Sequence[int] | None, num_devices: int | None) -> None:
    if sizes is None or sharding.tile_assignment is None:
        return
    tiles = sharding.tile_assignment
    largest = tiles.num_elements - 1 if tiles.iota is not None else max(tiles.flat)
    if num_devices is not None and largest >= num_devices:
        raise ShardingError(f"{sharding} uses device {largest}, there are {num_devices}")
    if sharding.kind == "maximal":
        return
    rank = sharding.tiled_data_rank
    if len(sizes) != rank:
        raise ShardingError(f"{sharding} splits {rank} dims, the shape {list(sizes)} has {len(sizes)}")
    if num_devices is not None and tiles.num_elements != num_devices:
        raise ShardingError(f"{sharding} uses {tiles.num_elements} devices, there are {num_devices}")
    if tiles.num_elements == 1:
        raise ShardingError(f"{sharding} tiles over one device", remedy="use replicated, or maximal")
