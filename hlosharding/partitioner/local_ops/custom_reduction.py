"""Partial results that only the op itself can combine: gathered from their devices, and the op done once more on them.

Floor: partitioner.  A reduction with a reducer of its own (arg-max), and the largest k: each device offers the k
largest of its tile, and the k largest of those are the result.

    tiles, k = 2       7 1 5 | 6 9 2
    candidates         7 5   | 9 6          with their places in the whole array: 0 2 | 4 3
    all-gather, again  9 7                  places 4 0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from hlosharding.ir import GatherDims, Instruction, Shape
from hlosharding.partitioner.context import Context
from hlosharding.partitioner.local_ops.local_op import LocalOp, emit_same_op
from hlosharding.partitioner.resharding import array_of, replicate
from hlosharding.rules import Reduce, Signature, Whole, top_k
from hlosharding.sharding import HloSharding, offsets, partial_sum_groups
from hlosharding.spmd import Emitter, identity

Groups = tuple[tuple[int, ...], ...]
Leaves = tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class CustomReduction:
    """How partial results of one kind of op become one."""

    applies: Callable[[Instruction], bool]
    """To this op?"""
    padding: Callable[[Context, Instruction, int], Any]
    """A number (or scalar instruction) that may stand in the padding of an operand."""
    combine: Callable[[Emitter, LocalOp, Leaves, Groups], Leaves]
    """The result leaves, from those of each device and the groups of devices that hold parts of one result."""


def combined(emitter: Emitter, op: LocalOp, reduction: CustomReduction, local: Instruction) -> Leaves:
    """The leaves of the result, whole in every group of devices that held a part of it."""
    groups = partial_sum_groups(op.choice.results[0], emitter.num_partitions)
    with emitter.because("combine partial results"):
        return reduction.combine(emitter, op, _leaves(emitter, local), groups)


def _leaves(emitter: Emitter, local: Instruction) -> Leaves:
    return tuple(emitter.elements(local)) if local.shape.is_tuple else (local,)


# ---- a reduction with a reducer of its own


def _initial_value(context: Context, inst: Instruction, index: int) -> Instruction:
    # XLA demands of an initial value that it is the reducer's identity: as padding it changes nothing.
    return replicate(context, array_of(context, inst.operands[len(inst.operands) // 2 + index])).local


def _reduced_again(emitter: Emitter, op: LocalOp, parts: Leaves, groups: Groups) -> Leaves:
    stacked = [emitter.all_gather(emitter.reshape(p, (1, *p.shape.dims)), 0, groups) for p in parts]
    inits = op.operands[len(op.operands) // 2 :]
    return _leaves(emitter, emitter.local(op.inst, op.shape, (*stacked, *inits), dimensions=(0,)))


BY_OWN_REDUCER = CustomReduction(lambda inst: True, _initial_value, _reduced_again)


# ---- the largest k


def candidates_signature(inst: Instruction, signature: Signature, x: HloSharding | None) -> Signature | None:
    """An alternative signature of a top-k, in which the dim is split and each device offers its own k candidates.

    None for other ops, and where the candidates with their places are no less than the elements they are taken from.
    `x` is the operand's sharding.
    """
    how = top_k(inst)
    shape = inst.operands[0].shape
    if how is None or x is None or x.kind != "tiled" or not inst.shape.leaves[0].size:
        return None
    offered = how.k * x.num_tiles_along(shape.rank - 1) * sum(leaf.bits for leaf in inst.shape.leaves)
    return _of_candidates(signature) if offered <= shape.dims[-1] * shape.bits else None


@lru_cache(maxsize=256)
def _of_candidates(signature: Signature) -> Signature:
    factors = (replace(f, owes=Reduce("other")) if isinstance(f.owes, Whole) else f for f in signature.factors)
    return Signature(tuple(factors), signature.operands, signature.results)


def _never_chosen(context: Context, inst: Instruction, index: int) -> np.ndarray:
    how = top_k(inst)
    assert how is not None
    return identity("maximum" if how.largest else "minimum", inst.operands[0].shape)


def emit_top_k(emitter: Emitter, op: LocalOp) -> Instruction:
    """The largest of a tile with their places in the whole array; any other custom call as it is."""
    how = top_k(op.inst)
    if how is None or op.choice.reduce_kind is None:
        return emit_same_op(emitter, op)
    x, dims = op.operands[0], op.inst.operands[0].shape.dims
    # A tile of fewer than k elements offers all of them.
    found = _largest(emitter, op, x, min(how.k, x.shape.dims[-1]))
    starts = offsets(op.choice.operands[0], dims, len(dims) - 1, emitter.num_partitions)
    start = emitter.per_device(starts)
    places = emitter.binary("add", found[1], emitter.full(start, found[1].shape))
    return emitter.op("tuple", Shape.tuple((found[0].shape, places.shape)), (found[0], places))


def _largest(emitter: Emitter, op: LocalOp, x: Instruction, k: int) -> Leaves:
    shape = Shape.tuple(tuple(s.with_dims((*x.shape.dims[:-1], k)) for s in op.inst.shape.tuple_shapes))
    # JAX's custom call has its k in the shape of its result alone.
    if op.inst.opcode == "topk":
        return _leaves(emitter, emit_same_op(emitter, op, (x,), shape=shape, k=lambda _: k))
    return _leaves(emitter, emit_same_op(emitter, op, (x,), shape=shape))


def _largest_of_all(emitter: Emitter, op: LocalOp, parts: Leaves, groups: Groups) -> Leaves:
    """Candidates stand in the order of their tiles, so that of equal ones the first in the whole array wins."""
    how, last = top_k(op.inst), parts[0].shape.rank - 1
    assert how is not None
    values, places = (_real_ones(emitter, op, emitter.all_gather(p, last, groups), len(groups[0])) for p in parts)
    best, chosen = _largest(emitter, op, values, how.k)
    return best, _taken(emitter, places, chosen)


def _real_ones(emitter: Emitter, op: LocalOp, candidates: Instruction, num_tiles: int) -> Instruction:
    """The candidates without those that come from padding: the last tiles may have fewer than k elements."""
    size, tile = op.inst.operands[0].shape.dims[-1], op.operands[0].shape.dims[-1]
    last = candidates.shape.rank - 1
    offered = candidates.shape.dims[last] // num_tiles
    if size >= (num_tiles - 1) * tile + offered:
        return candidates
    # In each tile real elements stand first, also those equal to the padding: of equal ones the first is chosen.
    parts: list[Instruction] = []
    for number in range(num_tiles):
        real = min(offered, size - number * tile)
        if real > 0:
            parts.append(emitter.slice_along(candidates, last, number * offered, number * offered + real))
    return emitter.concatenate(parts, last)


def _taken(emitter: Emitter, places: Instruction, chosen: Instruction) -> Instruction:
    """places[..., chosen[..., i]]"""
    last, dims = chosen.shape.rank - 1, chosen.shape.dims
    batch = tuple(range(last))
    how = GatherDims((), (last,), (last,), last + 1, batch, batch)
    return emitter.op(
        "gather", chosen.shape, (places, emitter.reshape(chosen, (*dims, 1))),
        gather_dims=how, gather_slice_sizes=(1,) * (last + 1),
    )  # fmt: skip


TOP_K = CustomReduction(lambda inst: top_k(inst) is not None, _never_chosen, _largest_of_all)
