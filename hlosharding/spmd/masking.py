"""Padding of uneven dims: it is garbage, and is replaced just before an op that would mix it in.

Floor: spmd.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hlosharding.errors import PartitionError
from hlosharding.ir import Instruction, Shape, is_neutral, neutral_element
from hlosharding.sharding import HloSharding, offsets, uneven_dims
from hlosharding.spmd.emitter import Emitter


def identity(kind: str, shape: Shape) -> np.ndarray:
    """The neutral element of a reduction, a 0-d array of the shape's element type.

    >>> identity("maximum", Shape.parse("f32[2]")), identity("minimum", Shape.parse("s8[2]"))
    (array(-inf, dtype=float32), array(127, dtype=int8))
    """
    found = neutral_element(kind, shape.element_type)
    if found is None:
        raise PartitionError(f"no neutral element for the reduction {kind!r} of {shape.element_type}")
    return found


def mask_padding(
    emitter: Emitter, local: Instruction, shape: Shape, sharding: HloSharding, dims: tuple[int, ...], fill: Any
) -> Instruction:
    """`local` with everything past the end of the global dims `dims` replaced by `fill` (a scalar)."""
    for dim in dims:
        if dim in uneven_dims(sharding, shape.dims):
            keep = inside(
                emitter, local.shape, dim, offsets(sharding, shape.dims, dim, emitter.num_partitions), shape.dims[dim]
            )
            local = emitter.select(keep, local, emitter.full(fill, local.shape))
    return local


def inside(emitter: Emitter, local: Shape, dim: int, starts: tuple[int, ...], size: int) -> Instruction:
    """pred[local dims]: does the element lie before `size` along `dim`, the device's tile starting at `starts`?"""
    line = Shape.array("s32", (local.dims[dim],))
    place = emitter.binary("add", emitter.iota(line, 0), emitter.full(emitter.per_device(starts), line))
    keep = emitter.compare(place, "LT", emitter.full(np.int32(size), line))
    return emitter.broadcast(keep, local.dims, (dim,))


def only_first(emitter: Emitter, local: Instruction, members: tuple[int, ...], kind: str) -> Instruction:
    """A value as partial sums: `local` on the first member of each group, the neutral element on the others.

    `members`: each device's position in its group.
    """
    if is_neutral(local, kind) or not any(members):
        return local
    first = emitter.compare(emitter.per_device(members), "EQ", emitter.constant(np.int32(0)))
    return emitter.select(first, local, emitter.full(identity(kind, local.shape), local.shape))
