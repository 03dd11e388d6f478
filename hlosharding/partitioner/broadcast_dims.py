"""Values that are the same along some dims: what is known of that, and moves that it saves.

Floor: partitioner.  Reads signatures and shardings; plans and emits nothing.  Along such a dim any slice is the whole
of what there is to know, so a move is one of a single slice: tiles in another order of devices, or of another size,
cost nothing there.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlosharding.ir import ELEMENTWISE, Instruction, Shape
from hlosharding.partitioner.iteration_space import Dims, untile
from hlosharding.rules import Nothing, Signature
from hlosharding.sharding import HloSharding

# Ops that compute alike at every place of a dim.  Bits of one number are no such places.
_ALIKE = (ELEMENTWISE - {"bitcast-convert"}) | {"broadcast", "dot", "reduce", "transpose"}


def broadcast_dims_of_results(
    inst: Instruction, signature: Signature, broadcast_dims: Sequence[Dims]
) -> tuple[Dims, ...]:
    """Per result the dims along which it is the same, given those of each operand."""
    if inst.opcode not in _ALIKE or not (any(broadcast_dims) or inst.opcode == "broadcast"):
        return ((),) * len(signature.results)
    fixed = [_is_fixed(inst, signature, number, broadcast_dims) for number in range(len(signature.factors))]
    return tuple(
        tuple(dim for dim, factors in enumerate(dims) if factors and all(fixed[f] for f in factors))
        for dims in signature.results
    )


def _is_fixed(inst: Instruction, signature: Signature, factor: int, broadcast_dims: Sequence[Dims]) -> bool:
    """Do all places of the factor see the same elements?  Only a broadcast makes places that no operand has."""
    carried = [
        dim in known
        for dims, known in zip(signature.operands, broadcast_dims, strict=True)
        for dim, factors in enumerate(dims)
        if factor in factors
    ]
    return isinstance(signature.factors[factor].owes, Nothing) and all(carried or [inst.opcode == "broadcast"])


def common_dims(left: Dims, right: Dims) -> Dims:
    """The dims along which both of two arrays of one shape are the same."""
    return left if left == right else tuple(d for d in left if d in right)


def broadcast_dims_after_reshape(dims: Dims, after: Dims, broadcast_dims: Dims) -> Dims:
    """The dims along which the same elements are the same in other dims.

    >>> broadcast_dims_after_reshape((4, 2, 3), (2, 4, 3), (0,))
    (0,)
    """
    if not broadcast_dims or 0 in dims:
        return ()
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


def slice_to_move(shape: Shape, source: HloSharding, target: HloSharding, broadcast_dims: Dims) -> Dims:
    """The dims of which one slice is all that has to move."""
    if not {source.kind, target.kind} <= {"tiled", "replicated"}:
        return ()
    return tuple(d for d in broadcast_dims if shape.dims[d] > 1 and not _ends_early(source, shape.dims[d], d))


def _ends_early(sharding: HloSharding, size: int, dim: int) -> bool:
    """Is a device's tile nothing but padding?"""
    ways = sharding.num_tiles_along(dim)
    return (ways - 1) * -(-size // ways) >= size


def slimmed(
    shape: Shape, source: HloSharding, target: HloSharding, broadcast_dims: Dims
) -> tuple[Shape, HloSharding, HloSharding]:
    """The move that brings an array from `source` to `target`, of one slice where that is all."""
    dims = slice_to_move(shape, source, target, broadcast_dims) if broadcast_dims else ()
    if not dims:
        return shape, source, target
    slim = shape.with_dims(tuple(1 if d in dims else size for d, size in enumerate(shape.dims)))
    return slim, untile(source, dims), untile(target, dims)
