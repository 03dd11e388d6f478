"""Shapes of tuples, as far as their shardings need them: which leaf of the flat list belongs to which place.

Floor: sharding.  A shape is a sequence of sizes (None: a token), a tuple's a sequence of shapes, an empty tuple's `[]`
(`()` is a scalar); or any object with `is_tuple`, `tuple_shapes` and `dims`, as `ir.Shape` is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlosharding.errors import ShardingError
from hlosharding.sharding.value import S

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
