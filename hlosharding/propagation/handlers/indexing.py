"""Gather and scatter: which dims of operand, indices and output (or update) move in step.

Floor: propagation.  A scatter is a gather run backwards: its updates stand where the gather's output stands.  Follows
XLA's GatherOutputShardingFromIndex and its kin; dims along which the indices are an iota come in as `op.parallel`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlosharding.propagation.handlers.table import BACKWARD, FORWARD, Shardings, wants_others
from hlosharding.propagation.improving import Receiver, partitioned
from hlosharding.propagation.op_view import Edge, Links, OpView, ParallelDims, element_sharding, is_partitioned
from hlosharding.sharding import (
    HloSharding,
    along_dims,
    find_common_sharding,
    merge_if_compatible,
    merge_sharding,
    replicate_on_dims,
)


@dataclass(frozen=True, slots=True)
class Indexing:
    """What gather and scatter have in common; `output` is a gather's result or a scatter's update."""

    operand_rank: int
    indices_rank: int
    output_rank: int
    passing: Links
    """Operand dims that are taken whole, and the output dims they become."""
    looked_up: Links
    """Indices dims, and the output dims they become."""
    batch: ParallelDims | None
    """Explicit batching dims."""


def output_dims_of(indices_dims: Sequence[int], index_vector_dim: int, offset_dims: Sequence[int]) -> tuple[int, ...]:
    """Where indices dims end up in the output (XLA's FillOutputDimsWithIndicesDims).

    >>> output_dims_of((0, 2), 1, (0,))
    (1, 2)
    """
    free = iter(d for d in range(len(offset_dims) + max(indices_dims) + 2) if d not in offset_dims)
    place = {d: next(free) for d in range(max(indices_dims) + 1) if d != index_vector_dim}
    return tuple(place[d] for d in indices_dims)


def indexing(op: OpView) -> Indexing:
    """The dims of a gather or scatter, as its rule declares them."""
    if op.opcode == "gather":
        indices, output, output_rank = 1, None, op.rank
    else:
        indices = scatter_inputs(op)
        output, output_rank = indices + 1, op.operand_shapes[indices + 1].rank
    looked_up = op.links(indices, output)
    batch_operand, batch_indices = op.links(0, indices)
    passing = [(a, b) for a, b in zip(*op.links(0, output), strict=True) if a not in batch_operand]
    place = dict(zip(*looked_up, strict=True))
    batch = None
    if batch_operand:
        batch = ParallelDims(batch_operand, batch_indices, tuple(place[d] for d in batch_indices))
    return Indexing(
        operand_rank=op.operand_shapes[0].rank,
        indices_rank=op.operand_shapes[indices].rank,
        output_rank=output_rank,
        passing=(tuple(a for a, _ in passing), tuple(b for _, b in passing)),
        looked_up=looked_up,
        batch=batch,
    )


def scatter_inputs(op: OpView) -> int:
    """How many operands a scatter updates."""
    return len(op.operand_shapes) // 2


def _no_tiles(sharding: HloSharding) -> bool:
    return sharding.is_tile_maximal() or sharding.is_manual()


def _operand_to_output(ix: Indexing, sharding: HloSharding) -> HloSharding | None:
    return None if _no_tiles(sharding) else _split_along(sharding, *ix.passing, ix.output_rank)


def _output_to_operand(ix: Indexing, sharding: HloSharding) -> HloSharding | None:
    return sharding if _no_tiles(sharding) else _split_along(sharding, ix.passing[1], ix.passing[0], ix.operand_rank)


def _split_along(sharding: HloSharding, source: Sequence[int], target: Sequence[int], rank: int) -> HloSharding | None:
    moved = along_dims(sharding, source, target, rank)
    return None if moved.is_tile_maximal() else moved


def _joined(first: HloSharding | None, second: HloSharding | None) -> HloSharding | None:
    """Parallel and pass-through dims together; the parallel ones win where both cannot be."""
    if first is None or second is None:
        return first if second is None else second
    for into, other in ((second, first), (first, second)):
        better, merged = merge_sharding(other, into, True)
        if better:
            return merged
    return first


# ---- gather


@FORWARD.register("gather")
def _gather(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    ix = indexing(op)
    operand, indices = operands
    if ix.batch:
        _gather_parallel(ix, ix.batch, receiver, operands)
    if indices is not None and indices.is_spatially_partitioned():
        receiver.improve(along_dims(indices, *ix.looked_up, ix.output_rank), 1)
    if not op.spmd:
        return
    if op.parallel:
        _gather_parallel(ix, op.parallel, receiver, operands)
    if operand is not None and operand.is_spatially_partitioned():
        parallel = op.parallel.operand if op.parallel else ()
        offered = _operand_to_output(ix, replicate_on_dims(operand, parallel))
        if offered is not None:
            receiver.improve(offered, 0)


def _gather_parallel(ix: Indexing, dims: ParallelDims, receiver: Receiver, operands: Shardings) -> None:
    for n, source in partitioned(operands):
        receiver.improve(along_dims(source, (dims.operand, dims.indices)[n], dims.output, ix.output_rank), n)


@BACKWARD.register("gather")
def _gather_operand(edge: Edge, own: object, user: HloSharding, others: Shardings, level: int) -> HloSharding | None:
    ix = indexing(edge.op)
    if 1 in edge.positions:
        return along_dims(user, ix.looked_up[1], ix.looked_up[0], ix.indices_rank)
    if not edge.op.spmd:
        return None
    return _joined(_along_parallel(edge.op, ix, user, to_output=False), _output_to_operand(ix, user))


def _all_parallel(op: OpView, ix: Indexing) -> ParallelDims | None:
    """Explicit batching dims, then implicit ones."""
    both = [d for d in (ix.batch, op.parallel) if d]
    if not both:
        return None
    return ParallelDims(
        operand=tuple(n for d in both for n in d.operand),
        indices=tuple(n for d in both for n in d.indices),
        output=tuple(n for d in both for n in d.output),
    )


def _along_parallel(op: OpView, ix: Indexing, sharding: HloSharding, *, to_output: bool) -> HloSharding | None:
    """Between operand and output."""
    if _no_tiles(sharding):
        return sharding
    dims = _all_parallel(op, ix)
    if dims is None:
        return None
    if to_output:
        return along_dims(sharding, dims.operand, dims.output, ix.output_rank)
    return along_dims(sharding, dims.output, dims.operand, ix.operand_rank)


# ---- scatter


@FORWARD.register("scatter")
def _scatter(op: OpView, receiver: Receiver, operands: Shardings, level: int) -> None:
    ix, count = indexing(op), scatter_inputs(op)
    if ix.batch:
        _scatter_parallel(op, ix, ix.batch, receiver, operands)
    if not op.spmd:
        for n in range(count):
            receiver.improve_leaf(HloSharding.replicate(), n, n)
        return
    for n, source in partitioned(operands[:count]):
        receiver.improve_leaf(source, n, n)
    if not any(map(is_partitioned, operands[count:])):
        return
    if op.parallel:
        _scatter_parallel(op, ix, op.parallel, receiver, operands)
    for n, update in partitioned(operands[count + 1 :]):
        offered = _output_to_operand(ix, update)
        if offered is not None:
            receiver.improve_leaf(offered, n, count + 1 + n)


def _scatter_parallel(op: OpView, ix: Indexing, dims: ParallelDims, receiver: Receiver, operands: Shardings) -> None:
    count, rank = scatter_inputs(op), ix.operand_rank
    for n, source in partitioned(operands):
        own = dims.operand if n < count else dims.indices if n == count else dims.output
        offered = along_dims(source, own, dims.operand, rank)
        # The indices address all that is scattered into, an update one of these.
        for leaf in range(count) if n == count else (n if n < count else n - count - 1,):
            receiver.improve_leaf(offered, leaf, n)


@wants_others("scatter")
def _indices_and_updates(op: OpView, positions: tuple[int, ...]) -> tuple[int, ...]:
    count = scatter_inputs(op)
    if positions[0] < count:
        return ()
    return tuple(range(count + 1, len(op.operand_shapes))) if positions[0] == count else (count,)


@BACKWARD.register("scatter")
def _scatter_operand(edge: Edge, own: object, user: HloSharding, others: Shardings, level: int) -> HloSharding | None:
    op, count = edge.op, scatter_inputs(edge.op)
    if edge.position < count:
        return element_sharding(user, op.shape, edge.position)
    ix = indexing(op)
    if edge.position == count:
        found = [along_dims(s, ix.looked_up[1], ix.looked_up[0], ix.indices_rank) for _, s in partitioned(others)]
        return find_common_sharding(found) if found else None
    leaf = element_sharding(user, op.shape, edge.position - count - 1)
    return _scatter_update(op, ix, leaf, others[0])


def _scatter_update(op: OpView, ix: Indexing, leaf: HloSharding, indices: HloSharding | None) -> HloSharding | None:
    from_indices = HloSharding.replicate()
    if indices is not None and indices.is_spatially_partitioned():
        from_indices = along_dims(indices, *ix.looked_up, ix.output_rank)
    if op.spmd:
        from_output = _joined(_along_parallel(op, ix, leaf, to_output=True), _operand_to_output(ix, leaf))
        if from_output is not None:
            if not (from_output.is_manual() or from_indices.is_manual()):
                from_output = merge_if_compatible(from_indices, from_output) or from_output
            if not from_output.is_tile_maximal():
                return from_output
    return None if from_indices.is_tile_maximal() else from_indices
