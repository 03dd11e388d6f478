"""What the ops that move nothing do to JAX's arrays: each device works on its own tile.

Floor: schedule.  Their meaning in numpy stands in `local_ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from hlosharding import xla_bridge
from hlosharding.executor import ShardedArray, restack_tiles, tiles_by_device
from hlosharding.schedule.local_ops import Add, Concat, Split, cut_array, join_pieces
from hlosharding.schedule.value_type import ValueType

Call = Callable[..., Sequence[Any]]
"""Arrays in and out.  In a process without a device of an operand that operand is None, and so are results."""


def local_call(op: Split | Concat | Add, kind: ValueType, devices: Sequence[Any]) -> Call:
    """What an op does to arrays; `kind` is the first one's type, `devices` those that it lies on."""
    match op:
        case Split():
            return partial(split_array, kind=kind, dim=op.dim, parts=op.parts)
        case Concat():
            return lambda *arrays: [concat_arrays(arrays, kind, op.dim, devices)]
        case Add():
            return lambda *arrays: [add_arrays(arrays, kind, devices)]


def split_array(array: Any, kind: ValueType, dim: int, parts: int) -> list[Any]:
    """Pieces of an array of this type.

    >>> import jax.numpy as jnp
    >>> from hlosharding.schedule.value_type import parse_type
    >>> [piece.tolist() for piece in split_array(jnp.arange(4), parse_type("s32[4] on {0}"), dim=0, parts=2)]
    [[0, 1], [2, 3]]
    """
    data = _data_of(array)
    pieces = _jitted_cut(dim, parts, _ways(array, kind, dim), data.sharding)(data)
    dims = (*array.shape[:dim], array.shape[dim] // parts, *array.shape[dim + 1 :])
    return [_like(array, piece, dims) for piece in pieces]


def concat_arrays(arrays: Sequence[Any], kind: ValueType, dim: int, devices: Sequence[Any]) -> Any:
    """The array of these pieces."""
    arrays = _stack_alike(arrays, kind, devices)
    first, data = arrays[0], list(map(_data_of, arrays))
    dims = (*first.shape[:dim], sum(array.shape[dim] for array in arrays), *first.shape[dim + 1 :])
    return _like(first, _jitted_join(dim, _ways(first, kind, dim), data[0].sharding)(*data), dims)


def add_arrays(arrays: Sequence[Any], kind: ValueType, devices: Sequence[Any]) -> Any:
    """The sum of arrays of this type."""
    arrays = _stack_alike(arrays, kind, devices)
    first, data = arrays[0], list(map(_data_of, arrays))
    return _like(first, _jitted_sum(data[0].sharding)(*data), first.shape)


def _stack_alike(arrays: Sequence[Any], kind: ValueType, devices: Sequence[Any]) -> Sequence[Any]:
    """All as stacked tiles where one is: a program whose axes cannot say a sharding gives it so."""
    if len({isinstance(array, ShardedArray) for array in arrays}) == 1:
        return arrays
    return [
        array
        if isinstance(array, ShardedArray)
        else ShardedArray(restack_tiles(tiles_by_device(array), devices, kind.tile), kind.sharding, array.shape)
        for array in arrays
    ]


def _data_of(array: Any) -> Any:
    """The jax array: of stacked tiles these."""
    return array.tiles if isinstance(array, ShardedArray) else array


def _like(array: Any, data: Any, dims: tuple[int, ...]) -> Any:
    """Stacked tiles where the array was such."""
    return ShardedArray(data, array.sharding, dims) if isinstance(array, ShardedArray) else data


def _ways(array: Any, kind: ValueType, dim: int) -> int:
    """Into how many tiles a dim of the data is split: stacked ones are so along the first."""
    if not isinstance(array, ShardedArray):
        return kind.ways(dim)
    return array.num_devices if dim == 0 else 1


@cache
def _jitted_cut(dim: int, parts: int, ways: int, sharding: Any) -> Callable[..., list[Any]]:
    return xla_bridge.jit(lambda array: cut_array(array, dim, parts, ways), out_shardings=[sharding] * parts)


@cache
def _jitted_join(dim: int, ways: int, sharding: Any) -> Callable[..., Any]:
    return xla_bridge.jit(lambda *arrays: join_pieces(arrays, dim, ways), out_shardings=sharding)


@cache
def _jitted_sum(sharding: Any) -> Callable[..., Any]:
    # Not from 0 on, which would make s32 of booleans.
    return xla_bridge.jit(lambda *arrays: sum(arrays[1:], start=arrays[0]), out_shardings=sharding)
