"""What is written in several ops: padding of uneven dims, which is garbage, replaced just before an op that would mix
it in; and a `while` of so many steps, for what the partitioner itself writes as a loop.

Floor: spmd.  Of a loop it knows the counter; what a step does is its caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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
    start = emitter.per_device(starts, reach=max(size, max(starts) + local.dims[dim]))
    line = start.shape.with_dims((local.dims[dim],))
    place = emitter.binary("add", emitter.iota(line, 0), emitter.full(start, line))
    keep = emitter.compare(place, "LT", emitter.full(size, line))
    return emitter.broadcast(keep, local.dims, (dim,))


def only_first(emitter: Emitter, local: Instruction, members: tuple[int, ...], kind: str) -> Instruction:
    """A value as partial sums: `local` on the first member of each group, the neutral element on the others.

    `members`: each device's position in its group.
    """
    if is_neutral(local, kind) or not any(members):
        return local
    first = emitter.compare(emitter.per_device(members), "EQ", emitter.constant(np.int32(0)))
    return emitter.select(first, local, emitter.full(identity(kind, local.shape), local.shape))


Step = Callable[[Emitter, Instruction, Sequence[Instruction]], list[Instruction]]
"""(an emitter of the body, the number of the step, what is carried) -> what is carried on."""


class LoopNames(NamedTuple):
    """How its computations are called, and what collectives in it give as their reason."""

    body: str
    condition: str
    reason: str


def counted_loop(
    emitter: Emitter, names: LoopNames, start: Sequence[Instruction], times: int, step: Step
) -> list[Instruction]:
    """`carried = step(number, carried)` so many times, the number counting from 0."""
    counter = emitter.constant(np.int32(0))
    shape = Shape.tuple((counter.shape, *(x.shape for x in start)))
    body, (number, *carried) = _opened(emitter, names.body, names.reason, shape)
    following = body.binary("add", number, body.constant(np.int32(1)))
    body.computation.root(body.op("tuple", shape, (following, *step(body, number, carried))))
    condition, (number, *_) = _opened(emitter, names.condition, names.reason, shape)
    condition.computation.root(condition.compare(number, "LT", condition.constant(np.int32(times))))
    packed = emitter.op("tuple", shape, (counter, *start))
    called = (body.computation.computation, condition.computation.computation)
    return emitter.elements(emitter.op("while", shape, (packed,), called=called))[1:]


def _opened(emitter: Emitter, name: str, reason: str, shape: Shape) -> tuple[Emitter, list[Instruction]]:
    """A computation of a carry, and the elements of the carry."""
    inner = Emitter(emitter.program, emitter.program.body(name), emitter.manual_groups)
    if emitter.cause.source is not None:
        inner.lowering(emitter.cause.source, reason)
    return inner, inner.elements(inner.computation.parameter(0, shape, name="carried"))
