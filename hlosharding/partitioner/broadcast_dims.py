"""Broadcast dims: those along which all elements of a value are the same, and the communication that this saves.

Floor: partitioner.  Reads signatures and shardings; plans and emits nothing.  Along such a dim any slice is the whole
of what there is to know, so a reshard is one of a single slice: tiles in another order of devices, or of another size,
cost nothing there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from hlosharding.ir import Shape
from hlosharding.partitioner.iteration_space import Dims, untile
from hlosharding.rules import Nothing, Signature
from hlosharding.sharding import HloSharding


def broadcast_dims_of_results(signature: Signature, broadcast_dims: Sequence[Dims]) -> tuple[Dims, ...]:
    """Per result the dims along which it is constant, given those of each operand.

    The op must compute alike at every place of a dim.  Places that no operand has, those that a broadcast makes, all
    see the same elements.
    """
    constant = [_is_constant(signature, number, broadcast_dims) for number in range(len(signature.factors))]
    return tuple(
        tuple(dim for dim, factors in enumerate(dims) if factors and all(constant[f] for f in factors))
        for dims in signature.results
    )


def _is_constant(signature: Signature, factor: int, broadcast_dims: Sequence[Dims]) -> bool:
    """Do all places of the factor see the same elements?"""
    return isinstance(signature.factors[factor].owes, Nothing) and all(
        dim in known
        for dims, known in zip(signature.operands, broadcast_dims, strict=True)
        for dim, factors in enumerate(dims)
        if factor in factors
    )


def common_dims(left: Dims, right: Dims) -> Dims:
    """The dims along which both of two arrays of one shape are constant."""
    return left if left == right else tuple(d for d in left if d in right)


@lru_cache(maxsize=1 << 12)
def broadcast_dims_after_reshape(dims: Dims, after: Dims, broadcast_dims: Dims) -> Dims:
    """The dims along which an array is constant after a reshape.

    >>> broadcast_dims_after_reshape((4, 2, 3), (2, 4, 3), (0,))
    (0,)
    """
    # The strides of an empty array are 0, and are divided by below.
    if not broadcast_dims or 0 in dims:
        return ()
    # A run goes from one stride to another over dims along which nothing changes: whatever dims the reshape makes of
    # it, nothing changes along these.
    runs, stride = [(1, 1)], 1
    for dim in reversed(range(len(dims))):
        stride *= dims[dim]
        if dim in broadcast_dims or dims[dim] == 1:
            runs[-1] = runs[-1][0], stride
        else:
            runs.append((stride, stride))
    found, stride = [], 1
    for dim in reversed(range(len(after))):
        step, stride = stride, stride * after[dim]
        if any(step % low == 0 and high % stride == 0 for low, high in runs if high > low):
            found.append(dim)
    return tuple(reversed(found))


def dims_of_one_slice(shape: Shape, source: HloSharding, target: HloSharding, broadcast_dims: Dims) -> Dims:
    """The dims of which a reshard needs to send one slice only."""
    if not {source.kind, target.kind} <= {"tiled", "replicated"}:
        return ()
    # A tile that is nothing but padding has no slice that its device could send.
    return tuple(d for d in broadcast_dims if shape.dims[d] > 1 and not _ends_early(source, shape.dims[d], d))


def _ends_early(sharding: HloSharding, size: int, dim: int) -> bool:
    """Is a device's tile nothing but padding?"""
    num_tiles = sharding.num_tiles_along(dim)
    return (num_tiles - 1) * -(-size // num_tiles) >= size


def one_slice_of(
    shape: Shape, source: HloSharding, target: HloSharding, broadcast_dims: Dims
) -> tuple[Shape, HloSharding, HloSharding]:
    """The reshard from `source` to `target`, of one slice along the broadcast dims where that is enough.

    >>> x, y = HloSharding.parse("{devices=[8,1]<=[8]}"), HloSharding.parse("{devices=[1,8]<=[8]}")
    >>> [str(part) for part in one_slice_of(Shape.parse("f32[16,24]"), x, y, (0,))]
    ['f32[1,24]', '{replicated}', '{devices=[1,8]<=[8]}']
    """
    dims = dims_of_one_slice(shape, source, target, broadcast_dims) if broadcast_dims else ()
    if not dims:
        return shape, source, target
    slim = shape.with_dims(tuple(1 if d in dims else size for d, size in enumerate(shape.dims)))
    return slim, untile(source, dims), untile(target, dims)
