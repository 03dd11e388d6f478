"""Steps that move nothing between devices: pieces of a batch, and what joins pieces and terms again.

Floor: schedule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, ClassVar

import numpy as np

from hlosharding.cost import Machine, op_time
from hlosharding.errors import ScheduleError
from hlosharding.schedule.op import Tilewise, Value, Work, check_count, check_same_devices, type_of
from hlosharding.schedule.shares import Share, check_pieces, join_shares
from hlosharding.schedule.value_type import Types, ValueType


def _count_tiles(found: ValueType, dim: int) -> int:
    """Into how many tiles a dim is split over devices.  Raises ScheduleError where there is no such dim."""
    if not 0 <= dim < found.shape.rank:
        raise ScheduleError(f"{found.shape} has no dim {dim}")
    return found.ways(dim)


def _with_dim(found: ValueType, dim: int, size: int) -> ValueType:
    return replace(found, shape=found.shape.with_dim(dim, size))


@dataclass(frozen=True, slots=True)
class Split(Tilewise):
    """Cut an array into equal pieces along a dim: microbatches.

    Each device cuts its own tile, so that nothing moves: of a dim that is split over devices, a piece is a part of
    every tile.

    >>> from hlosharding.ir import Shape
    >>> batch = ValueType(Shape.array("f32", (8, 4)), (0,))
    >>> [str(piece) for piece in Split(dim=0, parts=2, axis="micro").infer([batch])]
    ['f32[4,4] on {0}, piece 0/2 of micro', 'f32[4,4] on {0}, piece 1/2 of micro']
    """

    word: ClassVar[str] = "split"
    is_view: ClassVar[bool] = True
    dim: int
    parts: int
    axis: str

    def infer(self, operands: Sequence[Value]) -> Types:
        check_count(1, operands, self)
        whole = type_of(operands[0])
        if any(share.axis == self.axis for share in whole.shares):
            raise ScheduleError(f"it is a piece of {self.axis} already")
        ways = _count_tiles(whole, self.dim)
        size = whole.shape.dims[self.dim]
        if self.parts < 1 or size % (self.parts * ways):
            tiles = f" in {ways} tiles" if ways > 1 else ""
            raise ScheduleError(f"dim {self.dim} of {whole.shape}{tiles} cannot be cut into {self.parts} equal parts")
        check_pieces(self.parts)
        piece = _with_dim(whole, self.dim, size // self.parts)
        if self.parts == 1:
            return [piece]
        shares = [Share(self.axis, self.parts, (n,)) for n in range(self.parts)]
        return [replace(piece, shares=tuple(sorted((*whole.shares, share)))) for share in shares]

    def meaning(self, arrays: Sequence[np.ndarray], types: Types) -> Sequence[np.ndarray]:
        return cut_array(arrays[0], self.dim, self.parts, _count_tiles(types[0], self.dim))


def cut_array(array: Any, dim: int, parts: int, ways: int) -> list[Any]:
    """Pieces of which each has a part of each of the `ways` tiles of a dim; of a numpy or jax array.

    >>> [piece.tolist() for piece in cut_array(np.arange(8), 0, 2, 2)]
    [[0, 1, 4, 5], [2, 3, 6, 7]]
    """
    before, size, after = array.shape[:dim], array.shape[dim], array.shape[dim + 1 :]
    tiles = array.reshape(*before, ways, parts, size // parts // ways, *after)
    inner = (slice(None),) * (dim + 1)
    return [tiles[(*inner, n)].reshape(*before, size // parts, *after) for n in range(parts)]


def join_pieces(arrays: Sequence[Any], dim: int, ways: int) -> Any:
    """The array of which `cut_array` makes these pieces.

    >>> join_pieces(cut_array(np.arange(8), 0, 2, 2), 0, 2).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7]
    """
    before, after = arrays[0].shape[:dim], arrays[0].shape[dim + 1 :]
    tiles = [array.reshape(*before, ways, array.shape[dim] // ways, *after) for array in arrays]
    module: Any = np if isinstance(arrays[0], np.ndarray) else _jax_numpy()
    return module.concatenate(tiles, axis=dim + 1).reshape(*before, -1, *after)


def _jax_numpy() -> Any:
    import jax.numpy

    return jax.numpy


@dataclass(frozen=True, slots=True)
class Concat(Tilewise):
    """Join pieces along a dim: what `Split` cut, in the order of the pieces."""

    word: ClassVar[str] = "concat"
    dim: int

    def infer(self, operands: Sequence[Value]) -> Types:
        types = [type_of(value) for value in operands]
        if not types:
            raise ScheduleError("concat joins at least one piece")
        check_same_devices(types)
        first = types[0]
        ways = _count_tiles(first, self.dim)
        wanted = [_with_dim(t, self.dim, first.shape.dims[self.dim]) for t in types if t.shape.rank == first.shape.rank]
        if len(wanted) != len(types) or any((w.shape, w.sharding) != (first.shape, first.sharding) for w in wanted):
            raise ScheduleError(f"{types[0]} and its other operands do not join along dim {self.dim}")
        check_order(types)
        uneven = [t for t in types if t.shape.dims[self.dim] % ways]
        if uneven:
            what = f"{uneven[0]} has tiles of several sizes along dim {self.dim}: each device joins its own"
            raise ScheduleError(what, remedy=f"split that dim into {ways} equal tiles, or another dim")
        size = sum(t.shape.dims[self.dim] for t in types)
        return [replace(_with_dim(first, self.dim, size), shares=join_shares([t.shares for t in types], is_sum=False))]

    def meaning(self, arrays: Sequence[np.ndarray], types: Types) -> Sequence[np.ndarray]:
        return [join_pieces(arrays, self.dim, _count_tiles(types[0], self.dim))]

    def work(self, operands: Types, results: Types, machine: Machine) -> Work:
        own = machine.kind_of(results[0].devices)
        return Work(op_time(0.0, 2.0 * results[0].tile_bytes, "f32", own, matrix=False))


@dataclass(frozen=True, slots=True)
class Add(Tilewise):
    """The sum of values on the same devices; terms of one sum become that sum.  It is made in place of the first.

    >>> from hlosharding.ir import Shape
    >>> term = [ValueType(Shape.array("f32", (4,)), (0,), shares=(Share("micro", 2, (n,), True),)) for n in range(2)]
    >>> str(Add().infer(term)[0])
    'f32[4] on {0}'
    """

    word: ClassVar[str] = "add"
    donates = (0,)

    def infer(self, operands: Sequence[Value]) -> Types:
        types = [type_of(value) for value in operands]
        if len(types) < 2:
            raise ScheduleError("add takes two operands or more")
        check_same_devices(types)
        check_same_kind(types)
        return [replace(types[0], shares=join_shares([t.shares for t in types], is_sum=True))]

    def meaning(self, arrays: Sequence[np.ndarray], types: Types) -> Sequence[np.ndarray]:
        return [add_up(arrays)]

    def work(self, operands: Types, results: Types, machine: Machine) -> Work:
        [made], own = results, machine.kind_of(results[0].devices)
        # Types of less than a byte count as one byte, not as none.
        flops = (len(operands) - 1) * made.tile_bytes / max(1, made.shape.bits // 8)
        return Work(op_time(flops, (len(operands) + 1.0) * made.tile_bytes, made.shape.element_type, own, matrix=False))


def check_order(types: Types) -> None:
    """Raise ScheduleError where pieces that are to be joined do not come in their order."""
    along: dict[str, list[tuple[int, ...]]] = {}
    for share in (share for each in types for share in each.shares if not share.is_sum):
        along.setdefault(share.axis, []).append(share.members)
    if any(members != sorted(members) for members in along.values()):
        raise ScheduleError("the pieces come in another order than they were cut in", remedy="give piece 0 first")


def check_same_kind(types: Types) -> None:
    """Raise ScheduleError unless all have one shape and one sharding."""
    for number, each in enumerate(types):
        if (each.shape, each.sharding) != (types[0].shape, types[0].sharding):
            raise ScheduleError(f"operand {number} is {each}, operand 0 {types[0]}", remedy="they must be alike")


def add_up(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The sum, in the arrays' own type.

    >>> add_up([np.float16([1]), np.float16([2])])
    array([3.], dtype=float16)
    """
    # numpy makes a scalar, and no array, of arrays without dims.
    return np.asarray(reduce(add, arrays), arrays[0].dtype)
