"""Where a device's tile lies in the whole: sizes, offsets, limits; tiles round up, so the last may be short or empty.

Floor: sharding.  Knows sizes as plain tuples of ints.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.errors import ShardingError
from hlosharding.sharding.tile_assignment import Dims
from hlosharding.sharding.value import ShardingValue


def ceil_div(size: int, parts: int) -> int:
    """The size of the largest of `parts` pieces.

    >>> ceil_div(10, 4)
    3
    """
    return -(-size // parts)


def tile_shape(sharding: ShardingValue, dims: Sequence[int], device: int | None = None) -> Dims:
    """Sizes of a tile, rounded up; with `device` the sizes of its own tile."""
    if sharding.kind != "tiled":
        _refuse_tuple(sharding)
        return tuple(dims)
    _check_rank(sharding, dims)
    if device is None:
        return tuple([-(-size // parts) for size, parts in zip(dims, sharding.data_dims, strict=True)])
    offset, limit = tile_offset(sharding, dims, device), tile_limit(sharding, dims, device)
    return tuple(end - start for start, end in zip(offset, limit, strict=True))


def untile_shape(sharding: ShardingValue, dims: Sequence[int]) -> Dims:
    """Sizes of the whole if every tile has sizes `dims`.

    >>> from hlosharding.sharding import HloSharding
    >>> untile_shape(HloSharding.iota_tile((2, 4)), (3, 5))
    (6, 20)
    """
    _refuse_tuple(sharding)
    if sharding.kind != "tiled":
        return tuple(dims)
    _check_rank(sharding, dims)
    return tuple(size * ways for size, ways in zip(dims, sharding.data_dims, strict=True))


def tile_offset(sharding: ShardingValue, dims: Sequence[int], device: int) -> Dims:
    """First index of the device's tile in each dim."""
    return _tile_edge(sharding, dims, device, 0)


def tile_limit(sharding: ShardingValue, dims: Sequence[int], device: int) -> Dims:
    """One past the last index of the device's tile in each dim."""
    return _tile_edge(sharding, dims, device, 1)


def _tile_edge(sharding: ShardingValue, dims: Sequence[int], device: int, step: int) -> Dims:
    if sharding.kind != "tiled":
        if sharding.kind not in ("replicated", "maximal"):
            raise ShardingError(f"{sharding} has no tile offsets")
        return tuple(size * step for size in dims)
    _check_rank(sharding, dims)
    index = tile_index(sharding, device)
    parts = zip(index, dims, sharding.data_dims, strict=True)
    return tuple(min((i + step) * ceil_div(size, ways), size) for i, size, ways in parts)


def tile_index(sharding: ShardingValue, device: int) -> Dims:
    """Position of the device's tile among the data dims' tiles."""
    if sharding.kind != "tiled":
        raise ShardingError(f"{sharding} has no tiles to index")
    where: dict[int, int] | None = sharding.memo.get("tile_index")
    if where is None:
        where = sharding.memo["tile_index"] = {d: i for i, d in enumerate(sharding.tiles.flat)}
    if device not in where:
        raise ShardingError(f"device {device} holds no tile of {sharding}")
    place = where[device] * sharding.num_tiles // sharding.total_num_tiles
    index: list[int] = []
    for ways in reversed(sharding.data_dims):
        place, rest = divmod(place, ways)
        index.append(rest)
    return tuple(reversed(index))


def device_for_tile(sharding: ShardingValue, index: Sequence[int]) -> int:
    """The device of a tile; the first of its subgroup if only data dims are given."""
    if sharding.kind == "maximal":
        return sharding.tiles.first
    if sharding.kind != "tiled":
        raise ShardingError(f"{sharding} has no tiles to index")
    dims = sharding.tiles.dims
    if len(index) not in (len(dims), len(sharding.data_dims)):
        raise ShardingError(f"index {tuple(index)} into the tiles of {sharding}")
    full = (*index, *(0 for _ in dims[len(index) :]))
    if not all(0 <= i < ways for i, ways in zip(full, dims, strict=True)):
        raise ShardingError(f"tile {tuple(index)} is outside of {sharding}")
    place = 0
    for i, ways in zip(full, dims, strict=True):
        place = place * ways + i
    return sharding.tiles.flat[place]


def _check_rank(sharding: ShardingValue, dims: Sequence[int]) -> None:
    rank = sharding.tiled_data_rank
    if len(dims) != rank:
        raise ShardingError(f"{sharding} splits {rank} dims, the shape {list(dims)} has {len(dims)}")


def _refuse_tuple(sharding: ShardingValue) -> None:
    if sharding.kind == "tuple":
        raise ShardingError(f"{sharding} is of a tuple", remedy="ask each of its .leaves")
