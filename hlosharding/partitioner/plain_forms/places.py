"""What forms ask about places: is an op split where it matters, and which elements lie on a grid.

Floor: partitioner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from hlosharding.ir import Instruction, Shape
from hlosharding.partitioner.plain_forms.writer import Writer
from hlosharding.sharding import HloSharding


def plain_sharding(inst: Instruction) -> HloSharding | None:
    """The sharding of a value that is tiled, and not within a manual region; else None."""
    sharding = inst.module.sharding(inst)
    if sharding is None or sharding.kind != "tiled" or {"manual", "unreduced"} & set(sharding.subgroup_types):
        return None
    return sharding


def is_split_along(inst: Instruction, dims: Iterable[int]) -> bool:
    """Is the result of an op split along one of the dims?  That is where its elements have to be."""
    sharding = plain_sharding(inst)
    return sharding is not None and any(sharding.num_tiles_along(d) > 1 for d in dims)


Line = tuple[int, int, int]
"""Places start, start + step, ... below end."""


def inside_lines(write: Writer, shape: Shape, lines: Sequence[Line]) -> Instruction | None:
    """pred of the shape's dims: does an element lie on the line of every dim?  None where all do."""
    found: Instruction | None = None
    for predicate in _tests(write, shape, lines):
        found = predicate if found is None else write("and", found, predicate, sharding=write.sharding)
    return found


def type_of_places(shape: Shape) -> str:
    """Of integers that count along any dim of it."""
    return "s32" if max(shape.dims, default=0) <= np.iinfo(np.int32).max else "s64"


def _tests(write: Writer, shape: Shape, lines: Sequence[Line]) -> Iterator[Instruction]:
    sharding, integers = write.sharding, shape.with_type(type_of_places(shape))
    predicates = shape.with_type("pred")
    for dim, (start, end, step) in enumerate(lines):
        if (start, end, step) == (0, shape.dims[dim], 1):
            continue
        places = write("iota", shape=integers, dimensions=(dim,), sharding=sharding)

        def test(places: Instruction, direction: str, number: int) -> Instruction:
            limit = write.full(np.asarray(number, integers.dtype), integers, sharding)
            return write("compare", places, limit, shape=predicates, sharding=sharding, comparison_direction=direction)

        if start:
            yield test(places, "GE", start)
        if end < shape.dims[dim]:
            yield test(places, "LT", end)
        if step > 1:
            first = write.full(np.asarray(start, integers.dtype), integers, sharding)
            distance = write("subtract", places, first, sharding=sharding)
            every = write.full(np.asarray(step, integers.dtype), integers, sharding)
            yield test(write("remainder", distance, every, sharding=sharding), "EQ", 0)
