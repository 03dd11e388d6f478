"""Shapes of tuples, as far as their shardings need them: which leaf of the flat list belongs to which place.

Floor: sharding.  A shape is a sequence of sizes (None: a token), a tuple's a sequence of shapes, an empty tuple's `[]`
(`()` is a scalar); or any object with `is_tuple`, `tuple_shapes` and `dims`, as `ir.Shape` is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.sharding.value import S, ShardingValue

Sizes = tuple[int, ...] | None


def parts_of(shape: Any) -> Sequence[Any] | None:
    """The shapes inside a tuple's shape; None for an array's or a token's.

    >>> parts_of((2, 3)), parts_of(((2, 3), (4,))), parts_of([])
    (None, ((2, 3), (4,)), [])
    """
    if hasattr(shape, "is_tuple"):
        return shape.tuple_shapes if shape.is_tuple else None
    if shape is None or (len(shape) and all(isinstance(part, int) for part in shape)):
        return None
    return shape if len(shape) or isinstance(shape, list) else None


def leaf_sizes(shape: Any) -> list[Sizes]:
    """Sizes of every leaf, in the order in which tuple shardings list them; of an array: its own.

    >>> leaf_sizes(((2, 3), ((4,), None)))
    [(2, 3), (4,), None]
    """
    parts = parts_of(shape)
    if parts is not None:
        return [sizes for part in parts for sizes in leaf_sizes(part)]
    if hasattr(shape, "dims"):
        return [None if getattr(shape, "is_token", False) else tuple(shape.dims)]
    return [None if shape is None else tuple(shape)]


def required_leaves(shape: Any) -> int:
    """How many leaves a sharding of `shape` lists: an empty tuple has one.

    >>> required_leaves([]), required_leaves(((2,), (3,)))
    (1, 2)
    """
    return max(len(leaf_sizes(shape)), 1)


def sub_sharding(sharding: S, shape: Any, index: Sequence[int]) -> S:
    """The sharding of the part of `shape` at `index`: a leaf, or a tuple for an inner tuple.

    >>> from hlosharding.sharding import HloSharding
    >>> s = HloSharding.tuple([HloSharding.maximal(d) for d in range(3)])
    >>> str(sub_sharding(s, ((2,), ((3,), (4,))), (1, 0)))
    '{maximal device=1}'
    """
    start = 0
    for at in index:
        parts = parts_of(shape)
        if parts is None or not 0 <= at < len(parts):
            raise ShardingError(f"no part {tuple(index)} in a shape of {required_leaves(shape)} leaves")
        start += sum(len(leaf_sizes(part)) for part in parts[:at])
        shape = parts[at]
    if sharding.kind != "tuple":
        return sharding
    if parts_of(shape) is None:
        return sharding.leaf(start)
    return type(sharding).tuple(sharding.tuple_elements[start : start + len(leaf_sizes(shape))])


# ---- does a sharding fit a shape and a number of devices?
#
# Shapes as in `tuples`.


def validate(sharding: ShardingValue, shape: Any, num_devices: int | None = None) -> None:
    """Raise ShardingError unless `sharding` can be that of `shape` on `num_devices` devices (None: any number)."""
    is_tuple, leaves = parts_of(shape) is not None, leaf_sizes(shape)
    if sharding.kind != "tuple":
        if is_tuple:
            raise ShardingError(f"{sharding} is of one array, the shape is a tuple of {len(leaves)} leaves")
        _validate_leaf(sharding, leaves[0], num_devices)
        return
    if not is_tuple:
        # A token may have one: the sharding of an outfeed lists what it sends, too.
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
    check_rank(sharding, sizes)
    if num_devices is not None and tiles.num_elements != num_devices:
        raise ShardingError(
            f"{sharding} uses {tiles.num_elements} devices, there are {num_devices}",
            remedy="devices that hold copies are listed too: last_tile_dim_replicate",
        )
    if tiles.num_elements == 1:
        raise ShardingError(f"{sharding} tiles over one device", remedy="use replicated, or maximal")


def check_rank(sharding: ShardingValue, sizes: Sequence[int]) -> None:
    """Raise ShardingError unless a tiling is of an array of so many dims."""
    rank = sharding.tiled_data_rank
    if len(sizes) != rank:
        raise ShardingError(f"{sharding} splits {rank} dims, the shape {list(sizes)} has {len(sizes)}")
